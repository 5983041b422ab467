//! Decodes the percent-encoding of URLs.

use leasehold_core::Error;
use percent_encoding::percent_decode_str;

use crate::invalid;

/// Decodes a part of a URL. A plus sign is not a space.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the decoded text is not
/// UTF-8.
///
/// ```
/// assert_eq!(leasehold_settings::decode("a%20b+c")?, "a b+c");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
pub fn decode(text: &str) -> Result<String, Error> {
    let decoded = String::from_utf8(decode_bytes(text));
    decoded.map_err(|_| invalid("the URL must be percent-encoded UTF-8"))
}

/// Decodes the path of a file, which need not be UTF-8.
///
/// ```
/// assert_eq!(leasehold_settings::decode_bytes("/a%ff"), b"/a\xff");
/// ```
pub fn decode_bytes(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}
