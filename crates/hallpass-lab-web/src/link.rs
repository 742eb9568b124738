use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::LISTEN;

/// What stays readable in a link.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b':').remove(b',').remove(b'@');

/// The address that shows a part of the laboratory with these `key=value` words, as `lab serve` has it by default.
///
/// ```
/// let link = hallpass_lab_web::link("check", &["protocol=token".to_owned(), "faults=dup:1".to_owned()]);
/// assert_eq!(link, "http://127.0.0.1:8700/#check?protocol=token&faults=dup:1");
/// ```
pub fn link(part: &str, words: &[String]) -> String {
    let escape = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
    let pairs = words.iter().map(|word| match word.split_once('=') {
        Some((key, value)) => format!("{}={}", escape(key), escape(value)),
        None => escape(word),
    });
    format!("http://{LISTEN}/#{part}?{}", pairs.collect::<Vec<_>>().join("&"))
}
