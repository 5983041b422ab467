//! The map names only what there is.

use std::path::Path;

#[test]
fn every_path_on_the_map_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let map = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    assert!(map.lines().count() <= 150, "the map is longer than anybody reads");

    let paths: Vec<&str> =
        map.split('`').skip(1).step_by(2).filter(|name| name.contains('/')).collect();
    assert!(paths.len() > 20);
    for path in paths {
        assert!(root.join(path).exists(), "{path} is on the map and nowhere else");
    }
}
