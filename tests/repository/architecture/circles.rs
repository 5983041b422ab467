//! No files of a crate depend on each other in a circle, and the contract of core depends on no other folder.
//!
//! An arrow leads from a file to the file that defines an item which the first one names. A re-export is a signpost: the arrow follows it to
//! the definition, and the file that only re-exports gets no arrow. Neither does a file for declaring its modules. Tests do not count.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, ItemMod, ItemUse, Macro, UseTree, Visibility};

/// The directories of the crates.
const CRATES: [&str; 21] = [
    ".",
    "backend-etcd",
    "backend-fred",
    "backend-mysql",
    "backend-postgres",
    "backend-redis",
    "backend-sqlite",
    "backend-zookeeper",
    "cli",
    "conformance",
    "core",
    "lab/bench",
    "lab/campaign",
    "lab/simulation",
    "lab/testbed",
    "macros",
    "quorum",
    "redis-support",
    "redis-support/tests",
    "settings",
    "sql-support",
];

#[test]
fn no_crate_has_a_circle_of_files() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    for folder in CRATES {
        let source = root.join(folder).join("src");
        let roots = ["lib.rs", "main.rs"].map(|file| source.join(file));
        let file = roots.iter().find(|file| file.exists()).expect("a crate has a root");
        let arrows = Crate::read(file).arrows();
        assert!(!arrows.is_empty(), "{folder} has files that depend on others");
        if let Some(circle) = circle_in(&arrows) {
            panic!("files of {folder} depend on each other:\n{circle}");
        }
    }
}

#[test]
fn the_contract_of_core_names_no_other_folder() {
    let library = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("core/src/lib.rs");
    let arrows = Crate::read(&library).arrows();
    let contract: Vec<_> = arrows.iter().filter(|(file, _)| file.starts_with("contract")).collect();
    assert!(contract.len() > 10, "the contract has files that depend on others");

    for (file, named) in contract {
        for (other, item) in named {
            let (file, other) = (file.display(), other.display());
            assert!(other.to_string().starts_with("contract"), "{file} names {item} of {other}");
        }
    }
}

#[test]
fn a_circle_behind_a_re_export_is_found() {
    let files = [
        ("lib.rs", "mod door; mod engine; mod guard;"),
        ("door.rs", "pub(crate) use crate::guard::Guard;"),
        ("engine.rs", "use crate::door::Guard; pub(crate) struct Engine(Guard);"),
        ("guard.rs", "pub(crate) struct Guard(Box<crate::engine::Engine>);"),
    ];

    let circle = circle_in(&arrows_of(&files)).unwrap();

    assert_eq!(circle, "engine.rs names Guard of guard.rs\nguard.rs names Engine of engine.rs\n");
}

#[test]
fn files_that_share_a_door_are_no_circle() {
    let files = [
        ("lib.rs", "mod door; mod engine; mod guard;"),
        ("door.rs", "pub(crate) use crate::{engine::Engine, guard::Guard};"),
        ("engine.rs", "use crate::door::Guard; pub(crate) struct Engine(Guard);"),
        (
            "guard.rs",
            "pub(crate) struct Guard; #[cfg(test)] mod tests { use crate::door::Engine; }",
        ),
    ];

    let arrows = arrows_of(&files);

    assert_eq!(circle_in(&arrows), None);
    assert_eq!(arrows[Path::new("engine.rs")][Path::new("guard.rs")], "Guard");
}

/// From a file to those that it depends on, each with the name of an item there.
type Arrows = BTreeMap<PathBuf, BTreeMap<PathBuf, String>>;

/// The names of a path, from the root of the crate.
type Names = Vec<String>;

#[derive(Default)]
struct Crate {
    folder: PathBuf,
    modules: HashMap<Names, Module>,
}

#[derive(Default)]
struct Module {
    file: PathBuf,
    items: HashSet<String>,
    /// The path that each imported name stands for.
    imports: HashMap<String, Names>,
    /// The modules whose names are all imported.
    globs: Vec<Names>,
    /// The paths that the module names.
    paths: Vec<Names>,
}

impl Crate {
    fn read(library: &Path) -> Self {
        let folder = library.parent().unwrap().to_owned();
        let mut read = Self { folder: folder.clone(), ..Self::default() };
        read.read_file(library, &folder, vec![]);
        read
    }

    /// Reads the `names` module and those in it, of which the files lie in `folder`.
    fn read_file(&mut self, file: &Path, folder: &Path, names: Names) {
        let text = fs::read_to_string(file).unwrap();
        let items = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        self.read_module(file, folder, names, items.items);
    }

    fn read_module(&mut self, file: &Path, folder: &Path, names: Names, items: Vec<Item>) {
        let file_name = file.strip_prefix(&self.folder).unwrap().to_owned();
        let mut module = Module { file: file_name, ..Module::default() };
        for item in items {
            if is_for_tests(attributes_of(&item)) {
                continue;
            }
            match item {
                Item::Mod(ItemMod { ident, content, .. }) => {
                    let (folder, mut names) = (folder.join(ident.to_string()), names.clone());
                    names.push(ident.to_string());
                    let beside = folder.with_extension("rs");
                    match content {
                        Some((_, items)) => self.read_module(file, &folder, names, items),
                        None if beside.exists() => self.read_file(&beside, &folder, names),
                        None => self.read_file(&folder.join("mod.rs"), &folder, names),
                    }
                }
                Item::Use(item) => module.visit_item_use(&item),
                item => {
                    module.items.extend(name_of(&item));
                    module.visit_item(&item);
                }
            }
        }
        self.modules.insert(names, module);
    }

    fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (names, module) in &self.modules {
            for path in &module.paths {
                let Some(definition) = self.definition(names, path, &mut HashSet::new()) else {
                    continue;
                };
                if definition.0 != module.file {
                    let from = arrows.entry(module.file.clone()).or_default();
                    let named = from.entry(definition.0).or_insert_with(|| definition.1.clone());
                    *named = named.clone().min(definition.1);
                }
            }
        }
        arrows
    }

    /// The file that defines the item which `path` means in the `names` module, and the item's name; `None` if that is no item of this
    /// crate. The search has followed the imports in `seen`, and follows none of them again.
    fn definition(
        &self,
        names: &[String],
        path: &[String],
        seen: &mut HashSet<(Names, Names)>,
    ) -> Option<(PathBuf, String)> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => return self.definition(&[], rest, seen),
            "self" => return self.definition(names, rest, seen),
            "super" => return self.definition(&names[..names.len().checked_sub(1)?], rest, seen),
            _ => {}
        }
        let module = self.modules.get(names)?;
        let child = [names, &path[..1]].concat();
        if self.modules.contains_key(&child) && !rest.is_empty() {
            return self.definition(&child, rest, seen);
        }
        if module.items.contains(first) {
            return Some((module.file.clone(), first.clone()));
        }
        let imported = module.imports.get(first).map(|import| (import, rest));
        let globs = module.globs.iter().map(|glob| (glob, path));
        imported.into_iter().chain(globs).find_map(|(import, rest)| {
            let is_new = seen.insert((names.to_owned(), import.clone()));
            let path = [import, rest].concat();
            is_new.then(|| self.definition(names, &path, seen)).flatten()
        })
    }
}

impl Module {
    /// Adds the names of `tree`, which stands behind `path`.
    ///
    /// A private import is for the module's own code, which may use it in ways that no path shows, such as the methods of a trait.
    fn import(&mut self, mut path: Names, tree: &UseTree, is_private: bool) {
        let (last, name) = match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                return self.import(path, &tree.tree, is_private);
            }
            UseTree::Group(tree) => {
                let trees = tree.items.iter();
                return trees.for_each(|tree| self.import(path.clone(), tree, is_private));
            }
            UseTree::Glob(_) => return self.globs.push(path),
            UseTree::Name(tree) => (&tree.ident, &tree.ident),
            UseTree::Rename(tree) => (&tree.ident, &tree.rename),
        };
        let name = if last == "self" { path.last().unwrap().clone() } else { name.to_string() };
        if last != "self" {
            path.push(last.to_string());
        }
        if is_private {
            self.paths.push(path.clone());
        }
        self.imports.insert(name, path);
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(vec![], &item.tree, matches!(item.vis, Visibility::Inherited));
    }

    fn visit_impl_item_fn(&mut self, method: &'ast ImplItemFn) {
        if !is_for_tests(&method.attrs) {
            visit::visit_impl_item_fn(self, method);
        }
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        let tokens = called.tokens.to_string().replace(" :: ", "::");
        let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for path in tokens.split(|c| !is_of_path(c)).filter(|path| path.contains("::")) {
            self.paths.push(path.split("::").map(ToOwned::to_owned).collect());
        }
        visit::visit_macro(self, called);
    }
}

fn name_of(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Macro(item) => item.ident.as_ref()?.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        _ => return None,
    })
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_for_tests(attrs: &[Attribute]) -> bool {
    let is_cfg = |attr: &&Attribute| attr.path().is_ident("cfg");
    let says_test = |attr: &Attribute| {
        attr.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("test"))
    };
    attrs.iter().filter(is_cfg).any(says_test)
}

/// A circle of arrows, one line each.
fn circle_in(arrows: &Arrows) -> Option<String> {
    let mut done = BTreeSet::new();
    let circle =
        arrows.keys().find_map(|file| circle_from(file, arrows, &mut vec![], &mut done))?;
    let line = |pair: &[&PathBuf]| {
        let (from, to) = (pair[0], pair[1]);
        format!("{} names {} of {}\n", from.display(), arrows[from][to], to.display())
    };
    Some(circle.windows(2).map(line).collect())
}

/// The files of a circle that a walk from `file` comes upon, the first of them once more at the end.
fn circle_from<'a>(
    file: &'a PathBuf,
    arrows: &'a Arrows,
    way: &mut Vec<&'a PathBuf>,
    done: &mut BTreeSet<&'a PathBuf>,
) -> Option<Vec<&'a PathBuf>> {
    if let Some(start) = way.iter().position(|passed| *passed == file) {
        return Some([&way[start..], &[file]].concat());
    }
    if !done.insert(file) {
        return None;
    }
    way.push(file);
    let next = arrows.get(file).into_iter().flat_map(BTreeMap::keys);
    let circle = next.into_iter().find_map(|next| circle_from(next, arrows, way, done));
    way.pop();
    circle
}

fn arrows_of(files: &[(&str, &str)]) -> Arrows {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    Crate::read(&folder.path().join("lib.rs")).arrows()
}
