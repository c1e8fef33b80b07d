//! Images that go with a message: read from files, and sent in its parts.

use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ctx_api::http::NewPart;
use ctx_session::Code;
use ctx_session::image::{self, IMAGE_BYTES_MAX, KINDS, NewImage};

use crate::failure::Failure;

/// The parts of a message for these files.
pub fn read(paths: &[PathBuf]) -> Result<Vec<NewPart>, Failure> {
    let images = paths.iter().map(|path| open(path)).collect::<Result<Vec<NewImage>, Failure>>()?;
    image::check(&images).map_err(|refusal| Failure::new(refusal.code, refusal.message))?;
    let part = |image: NewImage| {
        let data = BASE64_STANDARD.encode(&image.bytes);
        NewPart::Image { mime: image.mime, data }
    };
    Ok(images.into_iter().map(part).collect())
}

fn open(path: &Path) -> Result<NewImage, Failure> {
    let failed = |error| Failure::io(path.display(), error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(IMAGE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    let not = || {
        let message = format!("{} is not an image; those are {}", path.display(), KINDS.join(", "));
        Failure::new(Code::Einval, message)
    };
    let mime = image::kind_of(&bytes).ok_or_else(not)?.to_owned();
    Ok(NewImage { mime, bytes })
}

/// The parts of a message for these files and for those that its text names.
pub fn read_with_named(paths: &[PathBuf], text: &str) -> Result<Vec<NewPart>, Failure> {
    let mut all = paths.to_vec();
    all.extend(named_in(text).into_iter().filter(|path| !paths.contains(path)));
    read(&all)
}

/// The files that a text names as `@file.png`: those that are there. The text stays as it is.
pub fn named_in(text: &str) -> Vec<PathBuf> {
    let endings = [".png", ".jpg", ".jpeg", ".gif", ".webp"];
    let is_image = |word: &&str| endings.iter().any(|ending| word.to_lowercase().ends_with(ending));
    let words = text.split_whitespace().filter_map(|word| word.strip_prefix('@'));
    words.filter(is_image).map(PathBuf::from).filter(|path| path.is_file()).collect()
}
