//! Each type, trait and function of core has an example on its page of the documentation, or links to one.

use std::collections::HashSet;
use std::path::PathBuf;

use syn::{
    Attribute, Expr, ExprLit, ImplItem, Item, ItemImpl, Lit, Meta, TraitItem, Type, Visibility,
};

use super::{is_for_tests, is_hidden, items_of};

/// A name, behind that of the module that has the same names for threads.
type Name = String;

#[derive(Default)]
struct Pages {
    /// Each page, with the docs of its type, trait or function.
    docs: Vec<(Name, String)>,
    /// The pages and the methods with an example.
    examples: HashSet<Name>,
}

impl Pages {
    fn add_all(&mut self, module: &str, items: &[Item]) {
        for item in items {
            match item {
                Item::Enum(item) => self.add(module, &item.ident, &item.vis, &item.attrs),
                Item::Fn(item) => self.add(module, &item.sig.ident, &item.vis, &item.attrs),
                Item::Impl(item) if item.trait_.is_none() => self.add_methods(module, item),
                Item::Mod(item) if !is_for_tests(&item.attrs) && !is_hidden(&item.attrs) => {
                    let is_own = item.ident == "blocking";
                    let content = &item.content.as_ref().expect("its file was read").1;
                    self.add_all(if is_own { "blocking::" } else { module }, content);
                }
                Item::Struct(item) => self.add(module, &item.ident, &item.vis, &item.attrs),
                Item::Trait(item) => {
                    self.add(module, &item.ident, &item.vis, &item.attrs);
                    for method in &item.items {
                        if let TraitItem::Fn(method) = method {
                            self.add_example(module, &item.ident, &method.sig.ident, &method.attrs);
                        }
                    }
                }
                Item::Type(item) => self.add(module, &item.ident, &item.vis, &item.attrs),
                _ => {}
            }
        }
    }

    fn add(&mut self, module: &str, name: &syn::Ident, vis: &Visibility, attrs: &[Attribute]) {
        if matches!(vis, Visibility::Public(_)) && !is_hidden(attrs) {
            let (name, docs) = (format!("{module}{name}"), docs_of(attrs));
            if docs.contains("```") {
                self.examples.insert(name.clone());
            }
            self.docs.push((name, docs));
        }
    }

    fn add_methods(&mut self, module: &str, item: &ItemImpl) {
        let Type::Path(of) = &*item.self_ty else { return };
        let of = &of.path.segments.last().unwrap().ident;
        for method in &item.items {
            if let ImplItem::Fn(method) = method {
                self.add_example(module, of, &method.sig.ident, &method.attrs);
            }
        }
    }

    fn add_example(
        &mut self,
        module: &str,
        of: &syn::Ident,
        name: &syn::Ident,
        attrs: &[Attribute],
    ) {
        if docs_of(attrs).contains("```") {
            self.examples.insert(format!("{module}{of}"));
            self.examples.insert(format!("{module}{of}::{name}"));
        }
    }
}

fn docs_of(attrs: &[Attribute]) -> String {
    let lines = attrs.iter().filter_map(|attr| match &attr.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) => Some(line.value() + "\n"),
            _ => None,
        },
        _ => None,
    });
    lines.collect()
}

/// The name in the sentence "See [`Name`] for an example".
fn shown_by(docs: &str) -> Option<&str> {
    let (before, _) = docs.split_once(" for an example")?;
    let (_, link) = before.rsplit_once("See [`")?;
    link.split('`').next()
}

#[test]
fn every_page_of_core_has_an_example_or_names_one() {
    let library = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("core/src/lib.rs");
    let mut pages = Pages::default();
    pages.add_all("", &items_of(&library, library.parent().unwrap()));
    assert!(pages.docs.len() > 100);

    let has_none = |(name, docs): &(Name, String)| {
        let (of_threads, shown_by) = (name.starts_with("blocking::"), shown_by(docs));
        let own =
            shown_by.map(|by| if of_threads { format!("blocking::{by}") } else { by.to_owned() });
        let named = [Some(name.clone()), own, shown_by.map(ToOwned::to_owned)];
        !named.iter().flatten().any(|name| pages.examples.contains(name))
    };
    let lacking: Vec<_> =
        pages.docs.iter().filter(|page| has_none(page)).map(|page| &page.0).collect();

    assert!(lacking.is_empty(), "without an example, or the name of one that exists: {lacking:?}");
}
