//! Expands an annotated function to a function that runs under a lock.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{Block, Error, Expr, Ident, ItemFn, LitStr, Member, Stmt, Type};

use crate::args::{Args, OnBusy};
use crate::function::{Names, Work};
use crate::template::{self, Part, Placeholder};

/// The modules of `leasehold` for async functions and for plain functions. Both modules contain
/// `mutex`, `run`, `run_or_skip` and `Guard`.
const ASYNC: &[&str] = &["__locked"];
const BLOCKING: &[&str] = &["__locked", "blocking"];

/// Wraps the body of `function` in a lock. Everything outside of the body is unchanged.
///
/// # Errors
///
/// Returns an error if the function does not support the attribute.
pub(crate) fn expand(args: &Args, mut function: ItemFn) -> syn::Result<TokenStream> {
    let name = function.sig.ident.clone();
    let mut names = Names::of(&function.sig);
    let work = Work::of(&mut function, &mut names)?;
    if let Some(guard) = args.guard.as_ref().filter(|guard| names.has(guard)) {
        let message =
            format!("`{guard}` is already an argument of the function; choose a different name");
        return Err(Error::new(guard.span(), message));
    }
    let locking = Locking { args, key: formatted(&args.key, &name, &names)? };
    match work {
        Work::Body(body, output) => locking.put_around_async(body, Some(&output)),
        Work::Blocking(body, output) => locking.put_around(body, &output),
        Work::Future { arguments, block } => {
            locking.put_around_async(block, None);
            block.stmts.splice(..0, arguments);
        }
    }
    Ok(function.into_token_stream())
}

/// Returns the arguments of `format_args!` that create the key.
fn formatted(template: &LitStr, function: &Ident, names: &Names) -> syn::Result<TokenStream> {
    let refused = |message| Error::new(template.span(), message);
    let (mut format, mut values) = (String::new(), Vec::new());
    for part in template::parse(&template.value()).map_err(refused)? {
        match part {
            Part::Text(text) => format += &text.replace('{', "{{").replace('}', "}}"),
            Part::Placeholder(placeholder) => {
                let Placeholder { column, root, fields } = placeholder;
                let Some(argument) = names.get(&root) else {
                    let message = format!(
                        "the placeholder `{{{root}}}` at column {column} does not name an argument of `{function}`, which has {names}"
                    );
                    return Err(refused(message));
                };
                format += "{}";
                // Errors about the value point to the template.
                let span = template.span().resolved_at(argument.span());
                let mut argument = argument.clone();
                argument.set_span(span);
                let fields = fields.iter().map(|field| member(field, span));
                let fields = fields.collect::<syn::Result<Vec<_>>>()?;
                values.push(quote_spanned!(span=> #argument #(.#fields)*));
            }
        }
    }
    Ok(quote_spanned!(template.span()=> #format #(, #values)*))
}

fn member(field: &str, span: Span) -> syn::Result<Member> {
    let mut member = syn::parse_str(field)?;
    match &mut member {
        Member::Named(name) => name.set_span(span),
        Member::Unnamed(index) => index.span = span,
    }
    Ok(member)
}

/// A lock that the attribute describes.
///
/// All generated names have the span of the definition site. The only generated name that the body
/// can use is the guard's name, which has the caller's span.
struct Locking<'a> {
    args: &'a Args,
    key: TokenStream,
}

impl Locking<'_> {
    /// Wraps the statements of an async function or block in the lock.
    fn put_around_async(&self, block: &mut Block, output: Option<&Type>) {
        let here = at(output);
        let module = self.module(here, ASYNC);
        let (mutex, run) = (self.mutex(ASYNC), self.run(here));
        let (guard, work) = (self.guard(), &block.stmts);
        // The compiler does not coerce a value to the declared output of an async closure. The
        // compiler does coerce later values to the type of a first `return`.
        let typed = output.map(|output| {
            quote_spanned! {here=>
                if let ::core::option::Option::Some(output) = ::core::option::Option::None::<#output> {
                    return output;
                }
            }
        });
        let locked = quote_spanned! {here=>
            let mutex = #mutex;
            #module::#run(mutex, async move |#guard: &#module::Guard| { #typed #(#work)* }).await
        };
        block.stmts = vec![Stmt::Expr(Expr::Verbatim(locked), None)];
    }

    /// Wraps the body of a plain function in the lock.
    fn put_around(&self, body: &mut Block, output: &Type) {
        let here = at(Some(output));
        let module = self.module(here, BLOCKING);
        let (mutex, run) = (self.mutex(BLOCKING), self.run(here));
        let guard = self.guard();
        let locked = quote_spanned! {here=>
            let mutex = #mutex;
            #module::#run(mutex, move |#guard: &#module::Guard| -> #output #body)
        };
        body.stmts = vec![Stmt::Expr(Expr::Verbatim(locked), None)];
    }

    fn mutex(&self, module: &[&str]) -> TokenStream {
        let (client, key) = (&self.args.client, &self.key);
        let settings = self.settings();
        let here = at(Some(client));
        let module = self.module(here, module);
        // Because of the separate variable, the compiler determines the client's type before it is
        // dereferenced.
        quote_spanned! {here=>
            match &(#client) {
                client => {
                    #module::mutex(client, ::core::format_args!(#key), |options| options #(.#settings)*)
                }
            }
        }
    }

    /// Returns the path of a module in `leasehold`. Errors about the path point to `here`.
    fn module(&self, here: Span, names: &[&str]) -> TokenStream {
        let facade = self.args.facade.to_token_stream().into_iter().map(|mut token| {
            token.set_span(token.span().located_at(here));
            token
        });
        let names = names.iter().map(|name| Ident::new(name, here));
        quote_spanned!(here=> #(#facade)* #(::#names)*)
    }

    /// Returns the name of the function that acquires the lock and runs the body.
    fn run(&self, here: Span) -> Ident {
        let name = match self.args.on_busy {
            OnBusy::Error => "run",
            OnBusy::Skip => "run_or_skip",
        };
        Ident::new(name, here)
    }

    fn guard(&self) -> TokenStream {
        match &self.args.guard {
            Some(guard) => guard.to_token_stream(),
            None => quote_spanned!(Span::mixed_site()=> _),
        }
    }

    /// Returns method calls for all options that the attribute sets.
    fn settings(&self) -> Vec<TokenStream> {
        let Args { facade, ttl, max_hold, every, .. } = self.args;
        let here = Span::mixed_site();
        let mut settings = Vec::new();
        if let Some(ttl) = ttl {
            let ttl = literal(*ttl);
            settings.push(quote_spanned!(here=> ttl(#ttl)));
        }
        if let Some(wait) = self.args.wait() {
            let wait = literal(wait);
            settings.push(quote_spanned!(here=> wait(#wait)));
        }
        if let Some(max_hold) = max_hold {
            let max_hold = literal(*max_hold);
            settings.push(quote_spanned!(here=> max_hold(#max_hold)));
        }
        if let Some(every) = every {
            let attempts = match self.args.attempts() {
                Some(attempts) => quote_spanned!(here=> attempts(#attempts)),
                None => quote_spanned!(here=> unlimited()),
            };
            let every = literal(*every);
            settings
                .push(quote_spanned!(here=> retry(#facade::retry::Retry::#attempts.every(#every))));
        }
        settings
    }
}

/// Returns a span that points to `tokens` in errors but uses the names of the definition site.
fn at(tokens: Option<&impl Spanned>) -> Span {
    let here = Span::mixed_site();
    tokens.map_or(here, |tokens| here.located_at(tokens.span()))
}

fn literal(time: Duration) -> TokenStream {
    let (secs, nanos) = (time.as_secs(), time.subsec_nanos());
    quote_spanned!(Span::mixed_site()=> ::core::time::Duration::new(#secs, #nanos))
}
