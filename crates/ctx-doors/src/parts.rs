//! The parts of a message that is posted, as the doors take them: text and images. Pure.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ctx_api::http::NewPart;
use ctx_session::Refusal;
use ctx_session::image::{self, NewImage};

/// The text of a message and its images.
pub(crate) fn read(text: String, parts: Vec<NewPart>) -> Result<(String, Vec<NewImage>), Refusal> {
    let (mut text, mut images) = (text, Vec::new());
    for part in parts {
        match part {
            NewPart::Text { text: more } => {
                if !text.is_empty() {
                    text.push_str("\n\n");
                }
                text.push_str(&more);
            }
            NewPart::Image { mime, data } => {
                let bytes = BASE64_STANDARD.decode(data.as_bytes());
                let bytes =
                    bytes.map_err(|_| Refusal::invalid("parts", "the data of an image is not base64"))?;
                images.push(NewImage { mime, bytes });
            }
        }
    }
    image::check(&images)?;
    Ok((text, images))
}
