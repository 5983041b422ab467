//! Parses key templates, which consist of text and of placeholders for arguments.

use syn::Member;

/// A part of a template.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Text(String),
    Placeholder(Placeholder),
}

/// A placeholder for an argument or for a field of an argument.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Placeholder {
    /// The position of the opening brace in the template, in characters, counted from 1.
    pub(crate) column: usize,
    /// The name of the argument, which may be `self`.
    pub(crate) root: String,
    /// The path of fields, from the outermost field to the innermost field.
    pub(crate) fields: Vec<String>,
}

/// Parses a template.
///
/// # Errors
///
/// Returns a message with the position of the mistake and the supported forms.
pub(crate) fn parse(template: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut chars = template.chars().zip(1..).peekable();
    while let Some((c, column)) = chars.next() {
        match c {
            '{' | '}' if chars.next_if(|(next, _)| *next == c).is_some() => text.push(c),
            '}' => {
                return Err(format!(
                    "the `}}` at column {column} has no opening brace; use `}}}}` for a literal brace"
                ));
            }
            '{' => {
                if !text.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                }
                let mut path = String::new();
                loop {
                    match chars.next() {
                        Some(('}', _)) => break,
                        Some((c, _)) => path.push(c),
                        None => {
                            return Err(format!(
                                "the `{{` at column {column} has no closing brace; use `{{{{` for a literal brace"
                            ));
                        }
                    }
                }
                parts.push(Part::Placeholder(placeholder(&path, column)?));
            }
            c => text.push(c),
        }
    }
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    if parts.is_empty() {
        return Err("a key must not be empty".to_owned());
    }
    Ok(parts)
}

fn placeholder(path: &str, column: usize) -> Result<Placeholder, String> {
    let mut names = path.split('.').map(ToOwned::to_owned);
    let root = names.next().unwrap_or_default();
    let fields = names.collect::<Vec<_>>();
    if is_name(&root) && fields.iter().all(|field| is_field(field)) {
        return Ok(Placeholder { column, root, fields });
    }
    Err(format!(
        "the placeholder `{{{path}}}` at column {column} must have the form `{{arg}}`, `{{arg.field}}` or `{{self.field}}`"
    ))
}

fn is_field(text: &str) -> bool {
    let is_index = text.chars().all(|c| c.is_ascii_digit());
    (is_name(text) || is_index) && syn::parse_str::<Member>(text).is_ok()
}

fn is_name(text: &str) -> bool {
    let is_inner = |c: char| c == '_' || c.is_alphanumeric();
    text != "_"
        && !text.starts_with(char::is_numeric)
        && !text.is_empty()
        && text.chars().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Part {
        Part::Text(text.to_owned())
    }

    fn value(column: usize, root: &str, fields: &[&str]) -> Part {
        let fields = fields.iter().map(|&field| field.to_owned()).collect();
        Part::Placeholder(Placeholder { column, root: root.to_owned(), fields })
    }

    #[test]
    fn text_and_placeholders_alternate() {
        for (template, parts) in [
            ("report", vec![text("report")]),
            ("{id}", vec![value(1, "id", &[])]),
            ("order:{id}", vec![text("order:"), value(7, "id", &[])]),
            ("{a}{b}", vec![value(1, "a", &[]), value(4, "b", &[])]),
            (
                "{self.shop}/{order.id.0}",
                vec![value(1, "self", &["shop"]), text("/"), value(13, "order", &["id", "0"])],
            ),
            ("{_id}é", vec![value(1, "_id", &[]), text("é")]),
        ] {
            assert_eq!(parse(template).unwrap(), parts, "{template}");
        }
    }

    #[test]
    fn doubled_braces_are_text() {
        assert_eq!(parse("{{id}}").unwrap(), [text("{id}")]);
        assert_eq!(parse("{{{id}}}").unwrap(), [text("{"), value(3, "id", &[]), text("}")]);
    }

    #[test]
    fn columns_count_characters() {
        assert_eq!(parse("größe:{id}").unwrap(), [text("größe:"), value(7, "id", &[])]);
    }

    #[test]
    fn mistakes_name_their_column() {
        for (template, message) in [
            ("order:{id", "the `{` at column 7 has no closing brace; use `{{` for a literal brace"),
            ("order:}", "the `}` at column 7 has no opening brace; use `}}` for a literal brace"),
            ("{{{", "the `{` at column 3 has no closing brace; use `{{` for a literal brace"),
        ] {
            assert_eq!(parse(template).unwrap_err(), message, "{template}");
        }
        for path in [
            "", "_", "id:?", "id:08", "a b", " id", "1", "a.", ".a", "a..b", "f()", "a.b()",
            "a::B", "a.type",
        ] {
            let message = parse(&format!("k:{{{path}}}")).unwrap_err();
            assert!(
                message.starts_with(&format!(
                    "the placeholder `{{{path}}}` at column 3 must have the form "
                )),
                "{message}"
            );
        }
    }

    #[test]
    fn an_empty_template_is_refused() {
        assert_eq!(parse("").unwrap_err(), "a key must not be empty");
    }
}
