//! Who may ask: clients that know the server by an address or one of its names, from its own page.

use std::net::IpAddr;

use axum::http::{HeaderMap, StatusCode, header};

/// Refuses a request that a page of another site has made.
///
/// A name that an attacker controls may point at this server (DNS rebinding), and a browser then takes its pages for ours.
/// The Host header still has that name. An address cannot be rebound.
pub(crate) fn check(headers: &HeaderMap, hosts: &[String]) -> Result<(), (StatusCode, &'static str)> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if !is_known(host, hosts) {
        return Err((StatusCode::MISDIRECTED_REQUEST, "this name is not one of the laboratory's; add --host NAME"));
    }
    let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
    let is_link = headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    if site == Some("cross-site") && !is_link {
        return Err((StatusCode::FORBIDDEN, "the laboratory answers to its own page only"));
    }
    Ok(())
}

fn is_known(host: &str, hosts: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_known_names_are_answered_and_no_other() {
        for host in ["127.0.0.1:8700", "127.0.0.1", "[::1]:8700", "localhost:1", "LOCALHOST", "Teacher.lan:80"] {
            assert!(is_known(host, &["teacher.lan".to_owned()]), "{host}");
        }
        for host in ["evil.example:8700", "127.0.0.1.evil.example", "localhost.evil.example", "", "::1.evil"] {
            assert!(!is_known(host, &["teacher.lan".to_owned()]), "{host}");
        }
    }

    #[test]
    fn another_sites_page_gets_nothing_but_a_link_works() {
        let headers = |mode: &'static str| {
            let pairs = [("host", "localhost"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", mode)];
            pairs
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .into_iter()
                .collect::<HeaderMap>()
        };
        assert!(check(&headers("cors"), &[]).is_err());
        assert!(check(&headers("navigate"), &[]).is_ok());
    }
}
