//! The `#[locked]` attribute of Leasehold, distributed locks for Rust.
//!
//! Enable the `macros` feature of the `leasehold` crate and use the attribute as
//! `leasehold::locked`. The `leasehold` crate also contains the documentation.

mod args;
mod duration;
mod expand;
mod function;
mod template;

use proc_macro::TokenStream;
use syn::parse_macro_input;

use crate::args::Args;

/// Runs a function under a lock. The `leasehold` crate contains the documentation, because the
/// examples need that crate.
#[proc_macro_attribute]
pub fn locked(args: TokenStream, function: TokenStream) -> TokenStream {
    let args = parse_macro_input!(args as Args);
    let expanded = function::parse(function.into()).and_then(|f| expand::expand(&args, f));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}
