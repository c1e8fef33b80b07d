//! Images that a user shows: what is kept of one in the log, which kinds there are, and how much of them one message may have.
//!
//! The bytes are a blob beside the log. Models are shown them; people are shown a line.

use serde::{Deserialize, Serialize};

use crate::code::{Code, Refusal};

/// An image of a message; its bytes are the blob of that hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub mime: String,
    pub sha256: String,
    pub size: u64,
}

/// An image on its way into the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewImage {
    pub mime: String,
    pub bytes: Vec<u8>,
}

/// The most images of one message, and the most bytes of them together: as base64 they fit the body of a request.
pub const IMAGES_MAX: usize = 8;
pub const IMAGE_BYTES_MAX: usize = 3 * 1024 * 1024;

/// What an image is taken for in a model's window. Providers count by its size in pixels, and few come to more.
pub const IMAGE_TOKENS: u64 = 1_600;

/// The kinds that every provider takes.
pub const KINDS: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// What kind of image the bytes are, by how they begin.
pub fn kind_of(bytes: &[u8]) -> Option<&'static str> {
    let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    match bytes {
        _ if bytes.starts_with(b"\x89PNG\r\n\x1a\n") => Some("image/png"),
        _ if bytes.starts_with(b"\xff\xd8\xff") => Some("image/jpeg"),
        _ if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") => Some("image/gif"),
        _ if is_webp => Some("image/webp"),
        _ => None,
    }
}

/// Whether these may be the images of a message. One that is not what it says would be refused by the provider, with every later
/// message of its session.
pub fn check(images: &[NewImage]) -> Result<(), Refusal> {
    let wrong = |message: String| Err(Refusal::invalid("parts", message));
    if images.len() > IMAGES_MAX {
        return wrong(format!("a message has at most {IMAGES_MAX} images, this one has {}", images.len()));
    }
    for image in images {
        if !KINDS.contains(&image.mime.as_str()) {
            return wrong(format!(
                "an image must be one of {}, not `{}`",
                KINDS.join(", "),
                short(&image.mime)
            ));
        }
        match kind_of(&image.bytes) {
            Some(kind) if kind == image.mime => {}
            Some(kind) => return wrong(format!("an image says that it is {}, and is {kind}", image.mime)),
            None => return wrong(format!("an image says that it is {}, and is no image", image.mime)),
        }
    }
    let bytes: usize = images.iter().map(|image| image.bytes.len()).sum();
    if bytes > IMAGE_BYTES_MAX {
        let message =
            format!("the images of a message have at most {IMAGE_BYTES_MAX} bytes, these have {bytes}");
        return Err(Refusal::new(Code::Emsgsize, message).blaming("parts"));
    }
    Ok(())
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

impl Image {
    /// The line that stands for it where it cannot be shown.
    pub fn in_words(&self) -> String {
        let kilobytes = self.size as f64 / 1024.0;
        format!("[image {}, {kilobytes:.1} KB]", self.mime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(mime: &str, bytes: &[u8]) -> NewImage {
        NewImage { mime: mime.to_owned(), bytes: bytes.to_vec() }
    }

    #[test]
    fn an_image_is_what_it_says_or_is_refused() {
        let png = b"\x89PNG\r\n\x1a\n rest";
        assert_eq!(check(&[image("image/png", png), image("image/gif", b"GIF89a..")]), Ok(()));
        assert_eq!(check(&[image("image/webp", b"RIFF....WEBPVP8 ")]), Ok(()));
        for (bad, words) in [
            (image("image/png", b"hello"), "is no image"),
            (image("image/jpeg", png), "and is image/png"),
            (image("text/plain", png), "must be one of"),
        ] {
            let refusal = check(&[bad]).unwrap_err();
            assert!(refusal.code == Code::Einval && refusal.message.contains(words), "{refusal}");
        }
        assert_eq!(check(&vec![image("image/png", png); 9]).unwrap_err().code, Code::Einval);
        let mut large = png.to_vec();
        large.resize(IMAGE_BYTES_MAX + 1, 0);
        assert_eq!(check(&[image("image/png", &large)]).unwrap_err().code, Code::Emsgsize);
    }
}
