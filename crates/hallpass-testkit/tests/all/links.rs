//! Links between pages lead somewhere.

use std::collections::HashMap;

use hallpass_testkit::repository::{Page, files, root};

#[test]
fn every_link_leads_to_a_file_and_to_a_heading_that_exist() {
    let pages = files().into_iter().filter(|path| path.ends_with(".md")).map(|path| Page::read(&path));
    let pages: HashMap<_, _> = pages.map(|page| (root().join(&page.path), page)).collect();
    let mut broken = Vec::new();
    for (path, page) in &pages {
        for (line, link) in page.links() {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { Ok(path.clone()) } else { path.with_file_name(file).canonicalize() };
            let leads = target.is_ok_and(|target| match pages.get(&target) {
                Some(page) if !heading.is_empty() => page.anchors().iter().any(|anchor| anchor == heading),
                _ => true,
            });
            if !leads {
                broken.push(format!("{}:{line}: {link}", page.path));
            }
        }
    }
    broken.sort();
    assert!(pages.len() > 30, "pages were read: {}", pages.len());
    assert_eq!(broken, [""; 0], "links that lead nowhere");
}
