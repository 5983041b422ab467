//! The public API of each published crate is the one in `docs/api/`.
//!
//! The lint `unreachable_pub` refuses a `pub` that no path leads to, so each item that the sources call `pub` is part of the API.
//! Items of private modules stand in the nearest public one, sorted by name, so that a record tells of paths and not of files.
//! `LEASEHOLD_BLESS=1 cargo test --test repository -- api::` writes the files anew.

mod examples;
mod twins;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{
    Attribute, Fields, File, Ident, ImplItem, Item, ItemImpl, ItemMod, ItemUse, TraitItem, Type,
    UsePath, UseTree, Visibility, parse_quote,
};

/// The folder and the name of each crate that is published and has an API.
const CRATES: [(&str, &str); 17] = [
    (".", "leasehold"),
    ("backend-etcd", "leasehold-etcd"),
    ("backend-fred", "leasehold-fred"),
    ("backend-mysql", "leasehold-mysql"),
    ("backend-postgres", "leasehold-postgres"),
    ("backend-redis", "leasehold-redis"),
    ("backend-sqlite", "leasehold-sqlite"),
    ("backend-zookeeper", "leasehold-zookeeper"),
    ("cas", "leasehold-cas"),
    ("conformance", "leasehold-conformance"),
    ("core", "leasehold-core"),
    ("entry", "leasehold-entry"),
    ("macros", "leasehold-macros"),
    ("quorum", "leasehold-quorum"),
    ("redis-support", "leasehold-redis-support"),
    ("settings", "leasehold-settings"),
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
            assert_eq!(
                new,
                old,
                "line {} of {}: see tests/repository/api/mod.rs",
                line + 1,
                recorded.display()
            );
        }
        assert_eq!(
            api.len(),
            expected.len(),
            "{} is stale: see tests/repository/api/mod.rs",
            recorded.display()
        );
    }
}

fn api_of(library: &Path) -> String {
    let mut items = items_of(library, library.parent().unwrap());
    let mut names = HashSet::new();
    keep_public(&mut items, &mut names);
    keep_impls_of(&mut items, &names);
    let mut private = HashSet::from(["crate", "self", "super"].map(ToOwned::to_owned));
    collect_private(&items, &mut private);
    let items = without_private(items, &private);
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
    // A type of the API may have the name of one of these.
    let private: HashSet<String> = items.iter().filter_map(private_type).collect();
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
        Item::Impl(item) => {
            !is_for_tests(&item.attrs)
                && !name_of(&item.self_ty).is_some_and(|name| private.contains(&name))
                && keep_public_in_impl(item)
        }
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

/// The name of a type that callers cannot name.
fn private_type(item: &Item) -> Option<String> {
    let (vis, ident) = match item {
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Struct(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    (!matches!(vis, Visibility::Public(_))).then(|| ident.to_string())
}

fn name_of(ty: &Type) -> Option<String> {
    let Type::Path(path) = ty else { return None };
    path.path.segments.last().map(|segment| segment.ident.to_string())
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
        Item::Impl(ItemImpl { self_ty, .. }) => {
            name_of(self_ty).is_none_or(|name| names.contains(&name))
        }
        Item::Mod(ItemMod { content: Some((_, content)), .. }) => {
            keep_impls_of(content, names);
            !content.is_empty()
        }
        _ => true,
    });
}

fn collect_private(items: &[Item], names: &mut HashSet<String>) {
    for item in items {
        if let Item::Mod(ItemMod { vis, ident, content: Some((_, content)), .. }) = item {
            if !matches!(vis, Visibility::Public(_)) {
                names.insert(ident.to_string());
            }
            collect_private(content, names);
        }
    }
}

/// The items with those of private modules among them, and without the names of these modules.
fn without_private(items: Vec<Item>, private: &HashSet<String>) -> Vec<Item> {
    let mut flat = Vec::new();
    for item in items {
        match item {
            Item::Mod(ItemMod { attrs, vis, ident, content: Some((_, content)), .. }) => {
                let mut content = without_private(content, private);
                if matches!(vis, Visibility::Public(_)) {
                    flat.push(parse_quote!(#(#attrs)* #vis mod #ident { #(#content)* }));
                } else {
                    content
                        .iter_mut()
                        .for_each(|item| name_and_attrs(item).1.extend(attrs.clone()));
                    flat.append(&mut content);
                }
            }
            Item::Use(ItemUse { attrs, vis, tree, .. }) => {
                let leaves = leaves_of(tree, private);
                flat.extend(leaves.iter().map(|leaf| parse_quote!(#(#attrs)* #vis use #leaf;)));
            }
            item => flat.push(item),
        }
    }
    let modules: HashSet<_> = flat.iter().filter_map(module).collect();
    flat.retain(|item| !matches!(item, Item::Use(item) if is_one_of(&modules, &item.tree)));
    flat.sort_by_cached_key(place);
    flat.dedup_by_key(|item| place(item));
    flat
}

fn module(item: &Item) -> Option<Ident> {
    if let Item::Mod(item) = item { Some(item.ident.clone()) } else { None }
}

fn is_one_of(modules: &HashSet<Ident>, tree: &UseTree) -> bool {
    matches!(tree, UseTree::Name(name) if modules.contains(&name.ident))
}

/// Each name that is exported, with its path outside of private modules.
fn leaves_of(tree: UseTree, private: &HashSet<String>) -> Vec<UseTree> {
    match tree {
        UseTree::Path(UsePath { ident, tree, .. }) => {
            let is_private = private.contains(&ident.to_string());
            let leaves = leaves_of(*tree, private).into_iter();
            leaves.map(|leaf| if is_private { leaf } else { parse_quote!(#ident::#leaf) }).collect()
        }
        UseTree::Group(group) => {
            group.items.into_iter().flat_map(|tree| leaves_of(tree, private)).collect()
        }
        leaf => vec![leaf],
    }
}

/// Sorts by name, and a type before its implementations.
fn place(item: &Item) -> (String, bool, String) {
    let mut item = item.clone();
    let name = name_and_attrs(&mut item).0;
    let is_impl = matches!(item, Item::Impl(_));
    let text = prettyplease::unparse(&File { shebang: None, attrs: Vec::new(), items: vec![item] });
    (name, is_impl, text)
}

fn name_and_attrs(item: &mut Item) -> (String, &mut Vec<Attribute>) {
    match item {
        Item::Const(item) => (item.ident.to_string(), &mut item.attrs),
        Item::Enum(item) => (item.ident.to_string(), &mut item.attrs),
        Item::Fn(item) => (item.sig.ident.to_string(), &mut item.attrs),
        Item::Impl(item) => (name_of(&item.self_ty).unwrap_or_default(), &mut item.attrs),
        Item::Macro(item) => (String::new(), &mut item.attrs),
        Item::Mod(item) => (item.ident.to_string(), &mut item.attrs),
        Item::Struct(item) => (item.ident.to_string(), &mut item.attrs),
        Item::Trait(item) => (item.ident.to_string(), &mut item.attrs),
        Item::Type(item) => (item.ident.to_string(), &mut item.attrs),
        Item::Use(item) => (String::new(), &mut item.attrs),
        _ => unreachable!("the API has no other items"),
    }
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
