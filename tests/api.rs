//! The public API of each published crate is the one in `docs/api/`.
//!
//! The lint `unreachable_pub` refuses a `pub` that no path leads to, so each item that the sources call `pub` is part of the API.
//! `LEASEHOLD_BLESS=1 cargo test --test api` writes the files anew.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{
    Attribute, Fields, File, ImplItem, Item, ItemImpl, ItemMod, TraitItem, Type, Visibility,
};

/// The folder and the name of each crate that is published and has an API.
const CRATES: [(&str, &str); 13] = [
    (".", "leasehold"),
    ("backend-etcd", "leasehold-etcd"),
    ("backend-fred", "leasehold-fred"),
    ("backend-mysql", "leasehold-mysql"),
    ("backend-postgres", "leasehold-postgres"),
    ("backend-redis", "leasehold-redis"),
    ("backend-sqlite", "leasehold-sqlite"),
    ("backend-zookeeper", "leasehold-zookeeper"),
    ("conformance", "leasehold-conformance"),
    ("core", "leasehold-core"),
    ("macros", "leasehold-macros"),
    ("redis-support", "leasehold-redis-support"),
    ("sql-support", "leasehold-sql-support"),
];

#[test]
fn the_public_api_is_the_recorded_one() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    for (folder, name) in CRATES {
        let recorded = root.join(format!("docs/api/{name}.txt"));
        let api = api_of(&root.join(folder).join("src/lib.rs"));
        if std::env::var_os("LEASEHOLD_BLESS").is_some() {
            fs::write(&recorded, &api).unwrap();
        }
        let expected = fs::read_to_string(&recorded).unwrap_or_default();
        for (line, (new, old)) in api.lines().zip(expected.lines()).enumerate() {
            assert_eq!(new, old, "line {} of {}: see tests/api.rs", line + 1, recorded.display());
        }
        assert_eq!(api.len(), expected.len(), "{} is stale: see tests/api.rs", recorded.display());
    }
}

fn api_of(library: &Path) -> String {
    let mut items = items_of(library, library.parent().unwrap());
    let mut names = HashSet::new();
    keep_public(&mut items, &mut names);
    keep_impls_of(&mut items, &names);
    prettyplease::unparse(&File { shebang: None, attrs: Vec::new(), items })
}

/// The items of a file, those of its modules' files included. `folder` is where these files are.
fn items_of(file: &Path, folder: &Path) -> Vec<Item> {
    let text = fs::read_to_string(file).unwrap();
    let mut items =
        syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display())).items;
    for item in &mut items {
        if let Item::Mod(ItemMod { ident, content: content @ None, attrs, .. }) = item
            && !is_for_tests(attrs)
        {
            let folder = folder.join(ident.to_string());
            let beside = folder.with_extension("rs");
            let file = if beside.exists() { beside } else { folder.join("mod.rs") };
            *content = Some((Default::default(), items_of(&file, &folder)));
        }
    }
    items
}

/// Removes all but the API, and collects the names of its types.
fn keep_public(items: &mut Vec<Item>, names: &mut HashSet<String>) {
    items.retain_mut(|item| match item {
        Item::Const(item) => is_api(&item.vis, &mut item.attrs),
        Item::Enum(item) => {
            for variant in &mut item.variants {
                tidy(&mut variant.attrs);
                variant.fields.iter_mut().for_each(|field| tidy(&mut field.attrs));
            }
            name_if_api(&item.ident, is_api(&item.vis, &mut item.attrs), names)
        }
        Item::Fn(item) => {
            item.block.stmts.clear();
            is_api(&item.vis, &mut item.attrs)
        }
        Item::Impl(item) => !is_for_tests(&item.attrs) && keep_public_in_impl(item),
        Item::Macro(item) => {
            item.mac.tokens = Default::default();
            let is_exported = item.attrs.iter().any(|a| a.path().is_ident("macro_export"));
            is_exported && is_api(&Visibility::Public(Default::default()), &mut item.attrs)
        }
        Item::Mod(item) => {
            if is_for_tests(&item.attrs) || is_hidden(&item.attrs) {
                return false;
            }
            tidy(&mut item.attrs);
            let content = &mut item.content.as_mut().expect("its file was read").1;
            keep_public(content, names);
            !content.is_empty()
        }
        Item::Struct(item) => {
            keep_public_fields(&mut item.fields);
            name_if_api(&item.ident, is_api(&item.vis, &mut item.attrs), names)
        }
        Item::Trait(item) => {
            for item in &mut item.items {
                match item {
                    TraitItem::Const(item) => tidy(&mut item.attrs),
                    TraitItem::Fn(item) => {
                        tidy(&mut item.attrs);
                        item.default.iter_mut().for_each(|block| block.stmts.clear());
                    }
                    TraitItem::Type(item) => tidy(&mut item.attrs),
                    _ => {}
                }
            }
            is_api(&item.vis, &mut item.attrs)
        }
        Item::Type(item) => is_api(&item.vis, &mut item.attrs),
        Item::Use(item) => is_api(&item.vis, &mut item.attrs),
        _ => false,
    });
}

fn keep_public_fields(fields: &mut Fields) {
    let is_public = |field: &syn::Field| matches!(field.vis, Visibility::Public(_));
    match fields {
        Fields::Named(fields) => {
            let all = std::mem::take(&mut fields.named);
            fields.named = all.into_iter().filter(is_public).collect();
        }
        Fields::Unnamed(fields) if !fields.unnamed.iter().any(is_public) => fields.unnamed.clear(),
        _ => {}
    }
    fields.iter_mut().for_each(|field| tidy(&mut field.attrs));
}

/// Whether there is something left of it to see.
fn keep_public_in_impl(item: &mut ItemImpl) -> bool {
    tidy(&mut item.attrs);
    if item.trait_.is_some() {
        item.items.retain(|item| matches!(item, ImplItem::Type(_)));
        return true;
    }
    item.items.retain_mut(|item| match item {
        ImplItem::Const(item) => is_api(&item.vis, &mut item.attrs),
        ImplItem::Fn(item) => {
            item.block.stmts.clear();
            is_api(&item.vis, &mut item.attrs)
        }
        _ => false,
    });
    !item.items.is_empty()
}

/// Removes implementations for types that callers cannot name, and modules that are empty then.
fn keep_impls_of(items: &mut Vec<Item>, names: &HashSet<String>) {
    items.retain_mut(|item| match item {
        Item::Impl(ItemImpl { self_ty, .. }) => match &**self_ty {
            Type::Path(path) => {
                names.contains(&path.path.segments.last().unwrap().ident.to_string())
            }
            _ => true,
        },
        Item::Mod(ItemMod { content: Some((_, content)), .. }) => {
            keep_impls_of(content, names);
            !content.is_empty()
        }
        _ => true,
    });
}

fn name_if_api(name: &syn::Ident, is_api: bool, names: &mut HashSet<String>) -> bool {
    if is_api {
        names.insert(name.to_string());
    }
    is_api
}

fn is_api(visibility: &Visibility, attrs: &mut Vec<Attribute>) -> bool {
    let is_api = matches!(visibility, Visibility::Public(_)) && !is_hidden(attrs);
    tidy(attrs);
    is_api
}

fn is_hidden(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| attr.path().is_ident("doc") && says(attr, "hidden"))
}

fn is_for_tests(attrs: &[Attribute]) -> bool {
    let of_tests = |attr: &&Attribute| ["test", "shuttle"].iter().any(|cfg| says(attr, cfg));
    attrs.iter().filter(|attr| attr.path().is_ident("cfg")).any(|attr| of_tests(&attr))
}

fn says(attr: &Attribute, word: &str) -> bool {
    attr.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains(word))
}

/// Keeps the attributes that callers notice.
fn tidy(attrs: &mut Vec<Attribute>) {
    const NOTICED: [&str; 7] = [
        "cfg",
        "deprecated",
        "derive",
        "macro_export",
        "must_use",
        "non_exhaustive",
        "proc_macro_attribute",
    ];
    attrs.retain(|attr| NOTICED.iter().any(|name| attr.path().is_ident(name)));
}
