//! The attribute `#[locked]` of Leasehold, a distributed lock for Rust.
//!
//! Use it as `leasehold::locked`, with the feature `macros` of the crate `leasehold`, which documents it.

mod args;
mod duration;
mod expand;
mod function;
mod template;

use proc_macro::TokenStream;
use syn::parse_macro_input;

use crate::args::Args;

/// Runs a function under a lock. The crate `leasehold` documents it, where its examples can run.
#[proc_macro_attribute]
pub fn locked(args: TokenStream, function: TokenStream) -> TokenStream {
    let args = parse_macro_input!(args as Args);
    let expanded = function::parse(function.into()).and_then(|f| expand::expand(&args, f));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}
