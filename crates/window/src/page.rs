//! The page: plain modules and a style sheet, served unchanged.

/// A file of the page.
pub(crate) struct File {
    pub(crate) path: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) text: &'static str,
}

macro_rules! files {
    ($($path:literal is $kind:literal from $file:literal;)+) => {
        /// All files.
        pub(crate) const FILES: &[File] = &[$(File {
            path: $path,
            kind: $kind,
            text: include_str!(concat!("../page/", $file)),
        }),+];
    };
}

files! {
    "/" is "text/html; charset=utf-8" from "index.html";
    "/window.css" is "text/css; charset=utf-8" from "window.css";
    "/window.js" is "text/javascript; charset=utf-8" from "window.js";
    "/state.js" is "text/javascript; charset=utf-8" from "state.js";
    "/text.js" is "text/javascript; charset=utf-8" from "text.js";
    "/lists.js" is "text/javascript; charset=utf-8" from "lists.js";
    "/overview.js" is "text/javascript; charset=utf-8" from "overview.js";
    "/agents.js" is "text/javascript; charset=utf-8" from "agents.js";
    "/operate.js" is "text/javascript; charset=utf-8" from "operate.js";
    "/map.js" is "text/javascript; charset=utf-8" from "map.js";
    "/conversations.js" is "text/javascript; charset=utf-8" from "conversations.js";
    "/sequence.js" is "text/javascript; charset=utf-8" from "sequence.js";
    "/doors.js" is "text/javascript; charset=utf-8" from "doors.js";
    "/platform.js" is "text/javascript; charset=utf-8" from "platform.js";
}

/// A browser's rights with the page: it may load the page's own files and talk to the page's own origin, and nothing
/// else. No script makes markup out of text.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; font-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    /// The promise of docs/monitoring.md.
    #[test]
    fn the_page_is_small_and_needs_no_other_host() {
        let size: usize = FILES.iter().map(|file| file.text.len()).sum();
        assert!(size < 100_000, "{size} bytes");
        for file in FILES {
            let others = [
                "http://",
                "https://",
                "innerHTML",
                "document.write",
                "insertAdjacentHTML",
                "eval(",
            ];
            for other in others {
                let text = file.text.replace("http://www.w3.org/2000/svg", "");
                assert!(!text.contains(other), "{}: {other}", file.path);
            }
        }
    }
}
