//! The line in the manifest that would open a file that the system refused to an isolated program.

/// The number of lines at the end of a log that are searched.
pub(crate) const LINES: u32 = 40;
/// The longest path that is named.
const LONGEST: usize = 4096;

/// The system's refusal, as C, Python, Rust, Java and JavaScript word it.
const REFUSALS: [&str; 4] = [
    "Permission denied",
    "PermissionDenied",
    "EACCES",
    "AccessDeniedException",
];

/// The advice for a failed program, if the last lines of its log say that the system refused it a file.
pub(crate) fn advice(log: &str) -> Option<String> {
    let refused = |line: &&str| REFUSALS.iter().any(|words| line.contains(words));
    let line = log.lines().rev().find(refused)?;
    let keys = "of its [[agent]] in the manifest";
    Some(match path_in(line) {
        Some(path) => {
            let path = path.replace('\\', "\\\\").replace('"', "\\\"");
            format!(
                "its isolation opens only the files that it needs and those that `read` and `write` {keys} name: \
                 read = [\"{path}\"]"
            )
        }
        None => format!(
            "its isolation opens only the files that it needs and those that `read` and `write` {keys} name"
        ),
    })
}

/// The absolute path on a line: in quotes, or up to a colon or a blank.
fn path_in(line: &str) -> Option<&str> {
    let starts = line.match_indices('/').map(|(at, _)| at);
    let before = |at: usize| line[..at].chars().next_back();
    let start = starts.into_iter().find(|at| {
        before(*at).is_none_or(|before| !before.is_alphanumeric() && before != '/' && before != '.')
    })?;
    let path = &line[start..];
    let end = match before(start) {
        Some(quote @ ('\'' | '"' | '`')) => path.find(quote),
        _ => path.find(|end: char| end == ':' || end.is_whitespace()),
    };
    let path = &path[..end.unwrap_or(path.len())];
    let is_plain = !path.is_empty() && path.len() <= LONGEST && !path.contains(char::is_control);
    is_plain.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_manifest_names_the_refused_path() {
        for (line, path) in [
            (
                "PermissionError: [Errno 13] Permission denied: '/srv/my data/prices'",
                "/srv/my data/prices",
            ),
            ("cat: /srv/prices: Permission denied", "/srv/prices"),
            (
                "Error: EACCES: permission denied, open '/srv/a\"b'",
                "/srv/a\\\"b",
            ),
            (
                "java.nio.file.AccessDeniedException: /srv/prices",
                "/srv/prices",
            ),
        ] {
            let log = format!("begins\n{line}\nends\n");
            let advice = advice(&log).unwrap();
            assert!(
                advice.ends_with(&format!("read = [\"{path}\"]")),
                "{advice}"
            );
        }
    }

    #[test]
    fn without_a_path_the_keys_are_named_and_other_failures_get_no_advice() {
        let rust =
            "Error: Os { code: 13, kind: PermissionDenied, message: \"Permission denied\" }\n";
        let advised = advice(rust).unwrap();
        assert!(advised.contains("`read` and `write`"), "{advised}");
        assert!(!advised.contains("read = ["), "{advised}");
        assert_eq!(advice("ValueError: 1/2 is no path\n"), None);
        assert_eq!(advice(""), None);
    }
}
