//! Each type for threads has the methods of its async twin, with the same parameters.
//!
//! The types of both kinds write out their methods, so that each page of the documentation is complete. This test keeps them in step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use syn::{Attribute, File, FnArg, ImplItem, ImplItemFn, Item, ItemFn, ItemImpl, Type, Visibility};

use super::{is_for_tests, is_hidden, items_of, says};

/// The methods that have no twin.
const ASYNC_ONLY: [(&str, &str); 18] = [
    // A thread cannot wait for several events at once: it blocks for a time, or looks.
    ("Guard", "ending"),
    ("Guard", "lost"),
    ("Guard", "revocation_requested"),
    ("Guard", "unconfirmed"),
    ("MultiGuard", "lost"),
    ("MultiGuard", "revocation_requested"),
    ("MultiGuard", "unconfirmed"),
    ("Observer", "into_stream"),
    ("Observer", "next"),
    // Nothing stops the work of a thread.
    ("Guard", "while_held"),
    ("MultiGuard", "while_held"),
    // The guards of parts have async methods.
    ("MultiGuard", "get"),
    ("MultiGuard", "guards"),
    // The backend belongs to the background thread, and a lease to helpers of a backend.
    ("Guard", "lease"),
    ("LockClient", "backend"),
    ("LockClient", "builder"),
    ("LockClient", "into_dyn"),
    ("LockClient", "new"),
];

#[test]
fn each_type_for_threads_has_the_methods_of_its_async_twin() {
    let library = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("core/src/lib.rs");
    let (mut threads, mut tasks) = (Methods::new(), Methods::new());
    collect(&items_of(&library, library.parent().unwrap()), false, &mut threads, &mut tasks);
    assert!(threads.len() > 10, "core has types for threads");

    let is_expected = |method: &&(String, String, String)| {
        threads.keys().any(|name| *name == method.0)
            && !ASYNC_ONLY.contains(&(&method.0, &method.1))
    };
    let all = |methods: &Methods| -> BTreeSet<(String, String, String)> {
        let each = |(name, methods): (&String, &BTreeMap<String, String>)| {
            let name = name.clone();
            methods.clone().into_iter().map(move |(method, form)| (name.clone(), method, form))
        };
        methods.iter().flat_map(each).collect()
    };
    let (threads_have, tasks_have) = (all(&threads), all(&tasks));
    let missing: Vec<_> = tasks_have.difference(&threads_have).filter(is_expected).collect();

    assert!(missing.is_empty(), "threads have no such methods: {missing:#?}");
    for (name, method) in ASYNC_ONLY {
        assert!(tasks[name].contains_key(method), "{name}::{method} is gone from the async types");
    }
}

/// By the name of a type and of its method, the form of the method for threads.
type Methods = BTreeMap<String, BTreeMap<String, String>>;

fn collect(items: &[Item], is_blocking: bool, threads: &mut Methods, tasks: &mut Methods) {
    for item in items {
        match item {
            Item::Mod(item) if !is_for_tests(&item.attrs) => {
                let is_blocking = is_blocking || item.ident == "blocking";
                let content = &item.content.as_ref().expect("its file was read").1;
                collect(content, is_blocking, threads, tasks);
            }
            Item::Impl(ItemImpl { self_ty, trait_: None, items, .. }) => {
                let Type::Path(path) = &**self_ty else { continue };
                let name = for_threads(&path.path.segments.last().unwrap().ident.to_string());
                let methods = if is_blocking { &mut *threads } else { &mut *tasks };
                for method in items {
                    if let ImplItem::Fn(method) = method
                        && matches!(method.vis, Visibility::Public(_))
                        && !is_hidden(&method.attrs)
                        && !is_of_simulation(&method.attrs)
                    {
                        let forms = methods.entry(name.clone()).or_default();
                        forms.insert(method.sig.ident.to_string(), form_of(method));
                    }
                }
            }
            _ => {}
        }
    }
}

fn is_of_simulation(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| attr.path().is_ident("cfg") && says(attr, "_simulation"))
}

/// The signature of a method, as its twin for threads has it.
fn form_of(method: &ImplItemFn) -> String {
    let mut method = method.clone();
    method.sig.asyncness = None;
    if let Some(FnArg::Receiver(receiver)) = method.sig.inputs.first_mut()
        && receiver.reference.is_none()
    {
        receiver.mutability = None;
    }
    method.block.stmts.clear();
    let ImplItemFn { vis, sig, block, .. } = method;
    let item = Item::Fn(ItemFn { attrs: Vec::new(), vis, sig, block: Box::new(block) });
    let text = prettyplease::unparse(&File { shebang: None, attrs: Vec::new(), items: vec![item] });
    for_threads(&text)
}

/// A text of the sources without its breaks of lines, in the words of threads.
fn for_threads(text: &str) -> String {
    let text = text.replace("AsyncFnOnce", "FnOnce").replace("LockGuard", "Guard");
    let line: Vec<_> = text.split_whitespace().collect();
    line.join(" ").replace("( ", "(").replace(", )", ")")
}
