//! Text of peers, made safe to show.

/// Puts a peer's text on one line and escapes what a terminal would not show as it is. Doing it twice changes nothing.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\'' | '"' | '\\' => shown.push(character),
            other => shown.extend(other.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_text_stays_on_one_line_and_keeps_its_quotes() {
        let shown = printable("it's \"fine\"\n\u{1b}[31m\u{202e}\\");
        assert_eq!(shown, "it's \"fine\"\\n\\u{1b}[31m\\u{202e}\\");
        assert_eq!(printable(&shown), shown);
    }
}
