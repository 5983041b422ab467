//! The workflows run scripts, crates and features that exist.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The commands of all workflows, each with the file that has it.
fn commands() -> Vec<(PathBuf, String)> {
    let mut commands = Vec::new();
    for entry in fs::read_dir(root().join(".github/workflows")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains('\t'), "{}: YAML has no tabs", path.display());
        for line in text
            .lines()
            .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("run: "))
        {
            commands.push((path.clone(), line.to_owned()));
        }
    }
    assert!(commands.len() >= 8);
    commands
}

/// The words that follow `flag`.
fn values<'a>(command: &'a str, flag: &str) -> Vec<&'a str> {
    let words: Vec<_> = command.split_whitespace().collect();
    words.windows(2).filter(|pair| pair[0] == flag).map(|pair| pair[1]).collect()
}

#[test]
fn every_script_of_a_workflow_exists() {
    for (file, command) in commands() {
        let program = command.split_whitespace().find(|word| !word.contains('=')).unwrap();
        if program.contains('/') {
            assert!(root().join(program).is_file(), "{} runs {program}", file.display());
        }
    }
}

#[test]
fn every_crate_and_feature_of_a_workflow_exists() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    let mut names = vec!["leasehold".to_owned()];
    names.extend(members.iter().map(|member| name_of(&root().join(member.as_str().unwrap()))));
    let features = manifest["features"].as_table().unwrap();

    for (file, command) in commands() {
        for name in values(&command, "-p") {
            assert!(names.iter().any(|known| known == name), "{}: -p {name}", file.display());
        }
        for feature in values(&command, "--features").iter().flat_map(|list| list.split(',')) {
            assert!(features.contains_key(feature), "{}: {feature}", file.display());
        }
    }
}

fn name_of(folder: &Path) -> String {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    manifest["package"]["name"].as_str().unwrap().to_owned()
}
