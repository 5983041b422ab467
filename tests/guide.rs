//! The pages of the book and of the repository: all are listed, and their links lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The Markdown files in `folder` and, of those called so, in its subfolders.
fn pages_in(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(pages_in(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages
}

fn book() -> Vec<PathBuf> {
    pages_in(&root().join("docs"))
}

/// The pages beside the book: of the root and of the forms for contributors.
fn others() -> Vec<PathBuf> {
    let mut pages = pages_in(&root().join(".github"));
    for entry in fs::read_dir(root()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages
}

struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut page = Self { links: Vec::new(), anchors: BTreeSet::new() };
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    page.anchors.insert(anchor(&heading.take().unwrap()));
                }
                _ => {}
            }
        }
        page
    }
}

/// The anchor that mdBook and hosts of repositories give to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The file and the anchor to which `link` on `page` leads; none if it leaves the repository.
fn target(page: &Path, link: &str) -> Option<(PathBuf, Option<String>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) =
        link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let file = match path {
        "" => page.to_owned(),
        path => page.parent().unwrap().join(path),
    };
    Some((file, anchor.map(ToOwned::to_owned)))
}

/// The links of `page` that lead to no file, or to no heading of it.
fn dead_links(page: &Path) -> Vec<String> {
    let mut dead = Page::read(page).links;
    dead.retain(|link| match target(page, link) {
        None => false,
        Some((file, _)) if !file.exists() => true,
        Some((_, None)) => false,
        Some((file, Some(anchor))) => !Page::read(&file).anchors.contains(&anchor),
    });
    dead
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = [book(), others()].concat();
    assert!(pages.len() > 20);
    for page in pages {
        let dead = dead_links(&page);
        assert!(dead.is_empty(), "{} has dead links: {dead:?}", page.display());
    }
}

#[test]
fn links_of_the_book_stay_in_the_book() {
    let docs = root().join("docs").canonicalize().unwrap();
    for page in book() {
        for link in Page::read(&page).links {
            if let Some((file, _)) = target(&page, &link) {
                let file = file.canonicalize().unwrap();
                assert!(file.starts_with(&docs), "{} leaves the book: {link}", page.display());
            }
        }
    }
}

#[test]
fn the_summary_lists_every_page_once() {
    let docs = root().join("docs");
    let mut listed = Page::read(&docs.join("SUMMARY.md")).links;
    listed.sort_unstable();

    let mut pages: Vec<_> = book()
        .iter()
        .map(|page| page.strip_prefix(&docs).unwrap().to_str().unwrap().replace('\\', "/"))
        .filter(|page| page != "SUMMARY.md")
        .collect();
    pages.sort_unstable();

    assert_eq!(listed, pages);
}

/// Each page with programs in Rust is a doctest of `src/guide.rs`.
#[test]
fn every_program_of_the_guide_is_compiled() {
    let compiled = fs::read_to_string(root().join("src/guide.rs")).unwrap();
    for page in pages_in(&root().join("docs/guide")) {
        let has_programs = fs::read_to_string(&page).unwrap().contains("```rust");
        let name = page.file_name().unwrap().to_str().unwrap();
        let is_compiled = compiled.contains(&format!("\"../docs/guide/{name}\""));
        assert_eq!(has_programs, is_compiled, "{name}");
    }
}

/// The default format of `tracing_subscriber` prints the level, the target and the message, but not the name of an event.
#[test]
fn log_lines_on_the_page_about_troubleshooting_begin_as_the_code_writes_them() {
    let page = fs::read_to_string(root().join("docs/guide/troubleshooting.md")).unwrap();
    let code = fs::read_to_string(root().join("core/src/observe/log.rs")).unwrap();
    let mut lines = 0;
    for level in ["DEBUG", "INFO", "WARN"] {
        let start = format!("{level} leasehold: ");
        for line in page.split(start.as_str()).skip(1) {
            let words: Vec<&str> = line.split_whitespace().take(2).collect();
            let message = format!("\"{}", words.join(" "));
            assert!(code.contains(&message), "no event has a message that begins with {message}");
            lines += 1;
        }
    }
    assert!(lines > 5);
}
