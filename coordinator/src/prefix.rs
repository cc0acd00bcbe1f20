//! Ids by their beginning: any unambiguous prefix of 8 characters or more stands for the whole.

use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;

/// Shortest prefix that is looked up.
pub const CHARS_MIN: usize = 8;

/// The one of `known` that `wanted` is, or begins.
pub fn resolve<'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
    unknown: impl Fn() -> Refusal,
) -> Result<&'a str, Refusal> {
    let mut found: Vec<&str> = Vec::new();
    for id in known {
        if id == wanted {
            return Ok(id);
        }
        if wanted.len() >= CHARS_MIN && id.starts_with(wanted) && !found.contains(&id) {
            found.push(id);
        }
    }
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(unknown()),
        [first, second, ..] => Err(Refusal::new(
            Code::AmbiguousId,
            format!("{wanted} begins {} ids: {first}, {second} ...", found.len()),
        )
        .effect("nothing was done")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_stands_for_its_id_only_where_it_is_the_only_one() {
        let known = ["abcdefgh-1", "abcdefgh-2", "zyxwvuts-1"];
        let find = |wanted: &str| {
            resolve(wanted, known, || Refusal::new(Code::UnknownMessage, "unknown")).map_err(|r| r.code)
        };
        assert_eq!(find("zyxwvuts"), Ok("zyxwvuts-1"));
        assert_eq!(find("abcdefgh-2"), Ok("abcdefgh-2"));
        assert_eq!(find("abcdefgh"), Err(Code::AmbiguousId));
        assert_eq!(find("zyx"), Err(Code::UnknownMessage));
    }
}
