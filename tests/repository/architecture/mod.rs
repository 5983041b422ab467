//! The map and the decisions name only files that exist, and no files depend on each other in a circle.

mod circles;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn paths_in(page: &Path) -> Vec<String> {
    let page = fs::read_to_string(page).unwrap();
    let names = page.split('`').skip(1).step_by(2);
    names.filter(|name| name.contains('/')).map(ToOwned::to_owned).collect()
}

#[test]
fn every_path_on_the_map_exists() {
    let map = root().join("ARCHITECTURE.md");
    let text = fs::read_to_string(&map).unwrap();
    let words = text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric));
    assert!(words.count() <= 1_250, "the map is too long");

    let paths = paths_in(&map);
    assert!(paths.len() > 20);
    for path in paths {
        assert!(root().join(&path).exists(), "{path} is on the map and nowhere else");
    }
}

#[test]
fn every_path_of_a_decision_exists() {
    for page in fs::read_dir(root().join("docs/decisions")).unwrap() {
        let page = page.unwrap().path();
        for path in paths_in(&page) {
            assert!(root().join(&path).exists(), "{} names {path}", page.display());
        }
    }
}
