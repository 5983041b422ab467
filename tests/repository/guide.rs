//! The pages of the book and of the repository: all are listed, and their links lead somewhere.
//!
//! The page of a store is the README of its crate. The book has a page that includes the README and defines the links for the book.

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

/// The pages of stores, with the files that they include.
fn stores() -> Vec<(PathBuf, PathBuf)> {
    let with_readme = |page: PathBuf| {
        let readme = included(&page).unwrap();
        (page, readme)
    };
    pages_in(&root().join("docs/stores")).into_iter().map(with_readme).collect()
}

/// The file that `page` includes.
fn included(page: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(page).unwrap();
    let (_, after) = text.split_once("{{#include ")?;
    let (path, _) = after.split_once(":page}}")?;
    Some(page.parent().unwrap().join(path))
}

/// The text of `page` as mdBook shows it.
fn text_of(page: &Path) -> String {
    let text = fs::read_to_string(page).unwrap();
    let Some(file) = included(page) else { return text };
    let (before, after) = text.split_once("{{#include ").unwrap();
    let (_, after) = after.split_once("}}").unwrap();
    let file = fs::read_to_string(file).unwrap();
    let (_, part) = file.split_once("<!-- ANCHOR: page -->\n").unwrap();
    let (part, _) = part.split_once("<!-- ANCHOR_END: page -->").unwrap();
    format!("{before}{part}{after}")
}

/// The pages outside the book: of the root, of stores and of the forms for contributors.
fn others() -> Vec<PathBuf> {
    let mut pages = pages_in(&root().join(".github"));
    pages.extend(stores().into_iter().map(|(_, readme)| readme));
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
        let text = text_of(path);
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

/// The names of the links that `path` defines.
fn defined_links(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap();
    let definitions = text.lines().filter(|line| line.starts_with('['));
    definitions.filter_map(|line| line.split_once("]: ")).map(|(name, _)| name.to_owned()).collect()
}

/// A name without definition would be shown as text.
#[test]
fn book_defines_the_links_of_each_store() {
    let stores = stores();
    assert!(!stores.is_empty());
    for (page, readme) in stores {
        assert_eq!(defined_links(&page), defined_links(&readme), "{}", page.display());
    }
}

/// The page of a store is the documentation of the store's crate, and its programs are doctests of `src/guide.rs`.
#[test]
fn page_of_each_store_is_documentation() {
    let compiled = fs::read_to_string(root().join("src/guide.rs")).unwrap();
    for (_, readme) in stores() {
        let folder = readme.parent().unwrap();
        let library = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        assert!(library.contains("doc = include_str!(\"../README.md\")"), "{}", folder.display());
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert!(compiled.contains(&format!("\"../{name}/README.md\"")), "{name}");
    }
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

/// The numbers in a text, with their separators.
fn figures(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_digit() && !matches!(c, ',' | '.'));
    words.map(|word| word.trim_matches(|c: char| !c.is_ascii_digit())).filter(|it| !it.is_empty())
}

/// A record that refers to the page on performance quotes figures from it. They must change together.
#[test]
fn figures_of_a_decision_are_on_the_page_on_performance() {
    let performance = fs::read_to_string(root().join("docs/performance.md")).unwrap();
    let measured: BTreeSet<&str> = figures(&performance).collect();
    for page in pages_in(&root().join("docs/decisions")) {
        let text = fs::read_to_string(&page).unwrap().replace(".\n", ". ");
        let sentences = text.split("\n\n").flat_map(|paragraph| paragraph.split(". "));
        for sentence in sentences {
            let Some((before, _)) = sentence.split_once("](../performance.md") else { continue };
            for figure in figures(before) {
                assert!(measured.contains(figure), "{}: {figure}", page.display());
            }
        }
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
