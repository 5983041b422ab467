//! The annotated function.

use std::fmt;

use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Block, Error, Expr, ExprAsync, FnArg, Ident, Item, ItemFn, Local, LocalInit, PatIdent,
    ReturnType, Signature, Stmt, TraitItemFn, Type, TypeImplTrait, TypeParamBound,
};

/// Parses the annotated item.
///
/// # Errors
///
/// Returns an error that states the fix if the item is not a function with a body.
pub(crate) fn parse(item: TokenStream) -> syn::Result<ItemFn> {
    syn::parse2(item.clone()).map_err(|error| {
        if let Ok(method) = syn::parse2::<TraitItemFn>(item.clone()) {
            let message = "`#[locked]` requires a body; put the attribute on the method in the `impl` block, or give this method a default body";
            return Error::new(method.sig.ident.span(), message);
        }
        match syn::parse2(item) {
            Ok(Item::Fn(_)) | Err(_) => error,
            Ok(Item::Impl(item)) => Error::new(item.impl_token.span, "`#[locked]` applies to functions; put the attribute on each method"),
            Ok(_) => Error::new(error.span(), "`#[locked]` applies only to functions and methods"),
        }
    })
}

/// The names with which a placeholder may begin, which are `self` and the names that the arguments
/// bind.
pub(crate) struct Names(Vec<Ident>);

impl Names {
    pub(crate) fn of(signature: &Signature) -> Self {
        let mut names = Self(Vec::new());
        for argument in &signature.inputs {
            match argument {
                FnArg::Receiver(receiver) => names.0.push(Ident::from(receiver.self_token)),
                FnArg::Typed(typed) => names.visit_pat_mut(&mut typed.pat.clone()),
            }
        }
        names
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Ident> {
        self.0.iter().find(|ident| ident.unraw() == name)
    }

    pub(crate) fn has(&self, name: &Ident) -> bool {
        self.0.contains(name)
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (index, name) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}`{}`", name.unraw())?;
        }
        Ok(())
    }
}

impl VisitMut for Names {
    fn visit_pat_ident_mut(&mut self, pattern: &mut PatIdent) {
        if !self.has(&pattern.ident) {
            self.0.push(pattern.ident.clone());
        }
        visit_mut::visit_pat_ident_mut(self, pattern);
    }
}

/// The part of a function that runs under the lock.
pub(crate) enum Work<'a> {
    /// The body of an `async fn`, and its return type.
    Body(&'a mut Block, Type),
    /// The body of a plain function, and its return type.
    Blocking(&'a mut Block, Type),
    /// The `async` block that a plain function returns, for example under `#[async_trait]`.
    /// `arguments` contains the statements at the start of the block that move arguments into it.
    Future { arguments: Vec<Stmt>, block: &'a mut Block },
}

impl Work<'_> {
    /// Finds the part that runs under the lock, and adds the names of arguments that the function's
    /// body destructures.
    ///
    /// # Errors
    ///
    /// Returns an error if the function does not return a value, or returns a future that is not an
    /// `async` block at the end of its body.
    pub(crate) fn of<'a>(function: &'a mut ItemFn, names: &mut Names) -> syn::Result<Work<'a>> {
        let refused = |message| Error::new(function.sig.ident.span(), message);
        let ReturnType::Type(_, output) = &function.sig.output else {
            let message = "`#[locked]` requires a function that returns a `Result`, because locking can fail; use, for example, `-> Result<(), leasehold::Error>`";
            return Err(refused(message));
        };
        let body = &mut *function.block;
        if function.sig.asyncness.is_some() {
            return Ok(Work::Body(body, without_impl_trait(output)));
        }
        if !is_future(output) {
            return Ok(Work::Blocking(body, without_impl_trait(output)));
        }
        let block = body.stmts.last_mut().and_then(returned).and_then(async_block);
        let block = block.ok_or_else(|| {
            refused("`#[locked]` cannot find the work in this function; use an `async fn`, or end the body with an `async` block or with `Box::pin(async move { … })`")
        })?;
        Ok(Work::Future { arguments: take_arguments(block, names), block })
    }
}

/// Returns the type for use inside the function, where `impl Trait` is not allowed.
fn without_impl_trait(output: &Type) -> Type {
    struct Inferred;

    impl VisitMut for Inferred {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            if let Type::ImplTrait(_) = ty {
                *ty = syn::parse_quote!(_);
            }
            visit_mut::visit_type_mut(self, ty);
        }
    }

    let mut output = output.clone();
    Inferred.visit_type_mut(&mut output);
    output
}

fn is_future(output: &Type) -> bool {
    match output {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            ["Pin", "BoxFuture", "LocalBoxFuture"].iter().any(|name| last.ident == name)
        }),
        Type::ImplTrait(TypeImplTrait { bounds, .. }) => bounds.iter().any(|bound| match bound {
            TypeParamBound::Trait(bound) => {
                bound.path.segments.last().is_some_and(|last| last.ident == "Future")
            }
            _ => false,
        }),
        _ => false,
    }
}

fn returned(last: &mut Stmt) -> Option<&mut Expr> {
    match last {
        Stmt::Expr(expression, None) => Some(expression),
        _ => None,
    }
}

/// Returns the block of `async { … }` or of `Box::pin(async { … })`.
fn async_block(expression: &mut Expr) -> Option<&mut Block> {
    match expression {
        Expr::Async(ExprAsync { block, .. }) => Some(block),
        Expr::Call(call) if call.args.len() == 1 => async_block(call.args.first_mut()?),
        _ => None,
    }
}

/// Removes the statements at the start of a block that move arguments into it.
///
/// `let __self = self` remains in the block, because keys and clients may contain `self`.
fn take_arguments(block: &mut Block, names: &mut Names) -> Vec<Stmt> {
    let mut taken = Vec::new();
    let mut at = 0;
    while let Some(statement) = block.stmts.get(at) {
        match argument(statement) {
            Some(argument) if argument == "self" => at += 1,
            Some(argument) if names.has(argument) => taken.push(block.stmts.remove(at)),
            // The first statement of `#[async_trait]` only determines the type.
            None if at == 0 && matches!(statement, Stmt::Expr(Expr::If(_), _)) => at += 1,
            _ => break,
        }
    }
    for statement in &mut taken {
        names.visit_stmt_mut(statement);
    }
    taken
}

/// Returns the argument in `let … = argument;` or in
/// `let … = { let argument = argument; argument };`.
fn argument(statement: &Stmt) -> Option<&Ident> {
    let Stmt::Local(Local { init: Some(LocalInit { expr, .. }), .. }) = statement else {
        return None;
    };
    match &**expr {
        Expr::Path(path) => path.path.get_ident(),
        Expr::Block(block) => match &block.block.stmts[..] {
            [first, Stmt::Expr(_, None)] => argument(first),
            _ => None,
        },
        _ => None,
    }
}
