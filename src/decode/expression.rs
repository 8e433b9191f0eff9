//! Expressions: text with `{name}` placeholders, each a capture of the topic template if there is
//! one of that name, else a path into the payload. `{{` and `}}` stand for braces.
//!
//! They name devices, types and lone fields. Parsed at start; per message they are looked up, and
//! a placeholder without a value says so instead of leaving a hole in an identity.

use std::borrow::Cow;

use super::path::Path;
use super::template::Template;
use super::value::Value;

/// A parsed expression.
#[derive(Debug, Clone)]
pub(super) struct Expression {
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    Text(Box<str>),
    Capture { index: usize, name: Box<str> },
    Path(Path),
}

/// What placeholders are looked up in.
#[derive(Clone, Copy)]
pub(super) struct Scope<'v, 'a> {
    pub(super) topic: &'v str,
    pub(super) template: Option<&'v Template>,
    /// The reading.
    pub(super) item: &'v Value<'a>,
    /// The whole payload, where a reading is only a part of it.
    pub(super) root: Option<&'v Value<'a>>,
}

impl<'v, 'a> Scope<'v, 'a> {
    /// What a path leads to, in the reading or else in the payload around it; null is absent.
    pub(super) fn find(&self, path: &Path) -> Option<&'v Value<'a>> {
        let found = |value: &'v Value<'a>| path.find(value).filter(|v| **v != Value::Null);
        found(self.item).or_else(|| self.root.and_then(found))
    }
}

impl Expression {
    /// An expression for nothing, where none is needed.
    pub(super) fn empty() -> Self {
        Self { parts: Vec::new() }
    }

    /// Reads an expression. Where the payload has no paths (`payload` is false) a placeholder must
    /// be a capture.
    pub(super) fn parse(
        text: &str,
        template: Option<&Template>,
        payload: bool,
    ) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            let after = &rest[at + 1..];
            if let Some(doubled) = after.strip_prefix(brace) {
                literal.push_str(brace);
                rest = doubled;
                continue;
            }
            let Some((name, after)) = after.split_once('}').filter(|_| brace == "{") else {
                return Err(format!(
                    "`{text}`: a placeholder reads `{{name}}`; a brace itself is doubled"
                ));
            };
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal).into()));
            }
            parts.push(placeholder(name, text, template, payload)?);
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal.into()));
        }
        Ok(Self { parts })
    }

    /// The text, or the first placeholder without a value.
    pub(super) fn evaluate<'v>(&'v self, scope: Scope<'v, '_>) -> Result<Cow<'v, str>, String> {
        if let [part] = &self.parts[..] {
            return part.evaluate(scope).map(Cow::Borrowed);
        }
        let mut out = String::new();
        for part in &self.parts {
            out.push_str(part.evaluate(scope)?);
        }
        Ok(Cow::Owned(out))
    }

    /// The text of an expression without placeholders.
    pub(super) fn constant(&self) -> Option<&str> {
        match &self.parts[..] {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The path of an expression that is nothing but one.
    pub(super) fn single_path(&self) -> Option<&Path> {
        match &self.parts[..] {
            [Part::Path(path)] => Some(path),
            _ => None,
        }
    }
}

impl Part {
    fn evaluate<'v>(&'v self, scope: Scope<'v, '_>) -> Result<&'v str, String> {
        match self {
            Part::Text(text) => Ok(text),
            Part::Capture { index, name } => scope
                .template
                .and_then(|t| t.value(*index, scope.topic))
                .ok_or_else(|| format!("the topic has no level for `{{{name}}}`")),
            Part::Path(path) => match scope.find(path) {
                None => Err(format!("the payload has no value at `{}`", path.as_str())),
                Some(value) => value.as_word().ok_or_else(|| {
                    format!(
                        "the value at `{}` is {}, not text or a number",
                        path.as_str(),
                        value.kind()
                    )
                }),
            },
        }
    }
}

fn placeholder(
    name: &str,
    text: &str,
    template: Option<&Template>,
    payload: bool,
) -> Result<Part, String> {
    if let Some(index) = template.and_then(|t| t.index_of(name)) {
        return Ok(Part::Capture {
            index,
            name: name.into(),
        });
    }
    if !payload {
        return Err(format!(
            "`{text}`: the template has no `{{{name}}}` and this codec's payload has no paths; add \
             the capture to `template`, or write fixed text"
        ));
    }
    if name.is_empty() {
        return Err(format!(
            "`{text}`: an empty placeholder; name a capture or a payload path"
        ));
    }
    Path::parse(name).map(Part::Path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_come_before_paths() {
        let template = Template::parse("a/{x}").unwrap();
        let item = Value::Object(vec![
            ("x".into(), Value::Number("1".into())),
            ("id".into(), Value::Number("44".into())),
            ("o".into(), Value::Array(vec![])),
            ("n".into(), Value::Null),
        ]);
        let root = Value::Object(vec![("n".into(), Value::Text("outer".into()))]);
        let scope = Scope {
            topic: "a/dev",
            template: Some(&template),
            item: &item,
            root: Some(&root),
        };
        let eval = |text: &str| {
            let expression = Expression::parse(text, Some(&template), true).unwrap();
            expression.evaluate(scope).map(Cow::into_owned)
        };
        assert_eq!(eval("{x}/{id}"), Ok("dev/44".into()));
        assert_eq!(eval("fixed {{x}}"), Ok("fixed {x}".into()));
        assert_eq!(eval("{n}"), Ok("outer".into()));
        assert!(eval("{o}").unwrap_err().contains("is an array"));
        assert!(eval("{gone}").unwrap_err().contains("no value at `gone`"));
    }

    #[test]
    fn placeholders_without_a_source_are_refused() {
        for (text, part) in [
            ("{x", "doubled"),
            ("x}", "doubled"),
            ("{}", "no `{}`"),
            ("{x}", "no `{x}`"),
        ] {
            let error = Expression::parse(text, None, false).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Expression::parse("{}", None, true).is_err());
    }
}
