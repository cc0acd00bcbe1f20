//! Reads values out of a TOML document with their places, puts variables in, and collects what is wrong
//! instead of stopping at the first.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use posthouse_shared::codes::Code;
use posthouse_shared::refusal::closest;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::Diagnostic;

/// A value and its place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spot<T> {
    pub value: T,
    pub span: Range<usize>,
}

/// One table of the file, with a name for messages.
#[derive(Debug, Clone)]
pub(super) struct Section<'a> {
    pub table: &'a DeTable<'a>,
    pub span: Range<usize>,
    pub what: String,
}

impl<'a> Section<'a> {
    pub fn get(&self, key: &str) -> Option<(Range<usize>, &'a Spanned<DeValue<'a>>)> {
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(name, value)| (name.span(), value))
    }
}

/// What was read so far.
pub(super) struct Reader<'s> {
    pub source: &'s str,
    pub problems: Vec<Diagnostic>,
    pub vars: BTreeMap<String, String>,
    pub used: BTreeSet<String>,
}

/// `name, or the nearest of these`, as one sentence.
pub(super) fn did_you_mean<'n>(wanted: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    let near = closest(wanted, known.into_iter().map(|name| (name, None)));
    near.first().map_or_else(String::new, |one| format!("; did you mean {:?}?", one.name))
}

/// Letters, digits, `_` and inner dashes; blanks around them are most likely a slip, and told as unknown.
fn is_name(text: &str) -> bool {
    let text = text.trim();
    let fits = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    fits && !text.starts_with('-') && !text.ends_with('-')
}

impl<'s> Reader<'s> {
    pub fn new(source: &'s str) -> Self {
        Self { source, problems: Vec::new(), vars: BTreeMap::new(), used: BTreeSet::new() }
    }

    pub fn wrong(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
        note: Option<String>,
    ) {
        let code = Code::BadTeamFile;
        self.problems.push(Diagnostic { code, message: message.into(), span, label: label.into(), note });
    }

    /// Something that a later build does.
    pub fn later(&mut self, span: Range<usize>, message: impl Into<String>, note: impl Into<String>) {
        self.problems.push(Diagnostic {
            code: Code::NotInThisBuild,
            message: message.into(),
            span,
            label: "not in this build".to_owned(),
            note: Some(note.into()),
        });
    }

    /// Says which keys of a section nobody knows.
    pub fn only(&mut self, section: &Section<'_>, known: &[&str]) {
        for (key, _) in section.table {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                self.wrong(
                    key.span(),
                    format!("{} has no key {name:?}", section.what),
                    format!("unknown key{}", did_you_mean(name, known.iter().copied())),
                    Some(format!("keys here: {}", known.join(", "))),
                );
            }
        }
    }

    fn sort(&mut self, section: &Section<'_>, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let found = value.get_ref().type_str();
        let message = format!("{}: {key} is {wanted}, not {found}", section.what);
        self.wrong(value.span(), message, format!("{wanted} is wanted here"), None);
    }

    /// A text with its variables put in.
    pub fn text(&mut self, section: &Section<'_>, key: &str) -> Option<Spot<String>> {
        let (_, value) = section.get(key)?;
        match value.get_ref().as_str() {
            Some(text) => Some(self.resolve(text, value.span())),
            None => {
                self.sort(section, key, value, "text in quotes");
                None
            }
        }
    }

    /// A text that must be there.
    pub fn needed(&mut self, section: &Section<'_>, key: &str) -> Option<Spot<String>> {
        if section.get(key).is_none() {
            let message = format!("{} has no {key}", section.what);
            self.wrong(section.span.clone(), message, format!("{key} = \"...\" is missing"), None);
            return None;
        }
        self.text(section, key)
    }

    /// A text that must be a name of some kind.
    pub fn name<T>(
        &mut self,
        spot: Option<Spot<String>>,
        parse: fn(String) -> Result<T, posthouse_shared::name::NameError>,
    ) -> Option<Spot<T>> {
        let spot = spot?;
        match parse(spot.value) {
            Ok(value) => Some(Spot { value, span: spot.span }),
            Err(error) => {
                self.wrong(spot.span, error.to_string(), "not a name", None);
                None
            }
        }
    }

    /// A yes or no.
    pub fn boolean(&mut self, section: &Section<'_>, key: &str, default: bool) -> bool {
        let Some((_, value)) = section.get(key) else { return default };
        value.get_ref().as_bool().unwrap_or_else(|| {
            self.sort(section, key, value, "true or false");
            default
        })
    }

    /// A list of texts; nothing where the key is not there.
    pub fn texts(&mut self, section: &Section<'_>, key: &str) -> Option<Vec<Spot<String>>> {
        let (_, value) = section.get(key)?;
        let Some(list) = value.get_ref().as_array() else {
            self.sort(section, key, value, "a list of texts");
            return None;
        };
        let mut texts = Vec::new();
        for one in list.iter() {
            match one.get_ref().as_str() {
                Some(text) => texts.push(self.resolve(text, one.span())),
                None => self.sort(section, key, one, "text in quotes"),
            }
        }
        Some(texts)
    }

    /// A table below a section.
    pub fn table<'a>(&mut self, section: &Section<'a>, key: &str, what: &str) -> Option<Section<'a>> {
        let (at, value) = section.get(key)?;
        match value.get_ref().as_table() {
            Some(table) => Some(Section { table, span: at, what: what.to_owned() }),
            None => {
                self.sort(section, key, value, "a table");
                None
            }
        }
    }

    /// The tables of a list such as `[[member]]`. `name` is the key whose value names one in messages.
    pub fn tables<'a>(&mut self, section: &Section<'a>, key: &str, name: &str) -> Vec<Section<'a>> {
        let Some((at, value)) = section.get(key) else { return Vec::new() };
        let Some(list) = value.get_ref().as_array() else {
            self.wrong(at, format!("{key} is a list"), format!("write [[{key}]]"), None);
            return Vec::new();
        };
        self.sections(list, key, name)
    }

    fn sections<'a>(&mut self, list: &'a DeArray<'a>, key: &str, name: &str) -> Vec<Section<'a>> {
        let mut sections = Vec::new();
        for (index, one) in list.iter().enumerate() {
            let Some(table) = one.get_ref().as_table() else {
                self.wrong(one.span(), format!("each {key} is a table"), format!("write [[{key}]]"), None);
                continue;
            };
            let named = table.iter().find(|(at, _)| at.get_ref() == name);
            let what = match named.and_then(|(_, value)| value.get_ref().as_str()) {
                Some(text) => format!("{key} {text:?}"),
                None => format!("{key} {}", index + 1),
            };
            sections.push(Section { table, span: self.header(one.span(), key), what });
        }
        sections
    }

    /// The `[[member]]` line of a table, which the parser's span may leave out.
    fn header(&self, span: Range<usize>, key: &str) -> Range<usize> {
        let header = format!("[[{key}]]");
        let end = span.start.saturating_add(header.len()).min(self.source.len());
        match self.source.get(..end).and_then(|before| before.rfind(&header)) {
            Some(at) => at..at + header.len(),
            None => span,
        }
    }

    /// Puts variables in: `${name}`; `$${name}` stands for itself, and so does what cannot be a name, such as
    /// the shell's `${name:-other}`.
    pub fn resolve(&mut self, text: &str, span: Range<usize>) -> Spot<String> {
        let mut value = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(literal) = before.strip_suffix('$') {
                value.push_str(literal);
                value.push_str("${");
                rest = after;
                continue;
            }
            value.push_str(before);
            let Some((name, after)) = after.split_once('}') else {
                self.wrong(span.clone(), "a variable is not closed", "} is missing", None);
                rest = "";
                break;
            };
            if !is_name(name) {
                value.push_str(&format!("${{{name}}}"));
                rest = after;
                continue;
            }
            match self.vars.get(name) {
                Some(var) => value.push_str(var),
                None => self.unknown_variable(name, &span),
            }
            self.used.insert(name.to_owned());
            rest = after;
        }
        value.push_str(rest);
        Spot { value, span }
    }

    fn unknown_variable(&mut self, name: &str, span: &Range<usize>) {
        let written = format!("${{{name}}}");
        let at = self.source.get(span.clone()).and_then(|text| text.find(&written));
        let span = at.map_or(span.clone(), |at| span.start + at..span.start + at + written.len());
        let known: Vec<String> = self.vars.keys().cloned().collect();
        let label = format!("not set{}", did_you_mean(name, known.iter().map(String::as_str)));
        let note =
            format!("set it in [vars] or with --set {name}=VALUE; for the text itself write $${{{name}}}");
        self.wrong(span, format!("no variable {name:?}"), label, Some(note));
    }

    /// A TOML value as JSON, with its variables put in.
    pub fn json(&mut self, value: &Spanned<DeValue<'_>>) -> serde_json::Value {
        match value.get_ref() {
            DeValue::String(text) => self.resolve(text, value.span()).value.into(),
            DeValue::Integer(number) => number
                .as_str()
                .parse::<i64>()
                .map_or_else(|_| number.to_string().into(), serde_json::Value::from),
            DeValue::Float(number) => number
                .as_str()
                .parse::<f64>()
                .map_or_else(|_| number.as_str().to_owned().into(), serde_json::Value::from),
            DeValue::Boolean(yes) => (*yes).into(),
            DeValue::Datetime(at) => at.to_string().into(),
            DeValue::Array(list) => list.iter().map(|one| self.json(one)).collect(),
            DeValue::Table(table) => serde_json::Value::Object(
                table.iter().map(|(key, one)| (Cow::to_string(key.get_ref()), self.json(one))).collect(),
            ),
        }
    }
}
