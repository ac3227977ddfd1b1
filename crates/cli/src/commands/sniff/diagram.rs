//! Sequence diagrams of the seen messages.

use std::fmt::Write as _;

use sealbus_control::text::excerpt;
use sealbus_window::Seen;

/// The width of a column, the height of a row, and the room above the first message, in pixels.
const COLUMN: usize = 180;
const ROW: usize = 26;
const TOP: usize = 60;
/// Most characters of a name or label.
const LONGEST: usize = 60;

/// One arrow.
struct Arrow {
    from: usize,
    to: usize,
    label: String,
    is_refused: bool,
}

/// The columns by name, in the order of their first message, and the arrows.
fn laid_out(seen: &[Seen]) -> (Vec<String>, Vec<Arrow>) {
    let mut columns: Vec<String> = Vec::new();
    let mut column = |name: &str| match columns.iter().position(|known| known == name) {
        Some(at) => at,
        None => {
            columns.push(name.to_owned());
            columns.len() - 1
        }
    };
    let arrows = seen.iter().map(|seen| match seen {
        Seen::Message(head) => Arrow {
            from: column(&head.from),
            to: column(&head.to),
            label: match &head.channel {
                Some(channel) => format!("{} {channel}", head.performative),
                None => head.performative.clone(),
            },
            is_refused: false,
        },
        Seen::Refused(record) => {
            let from = column(&record.who);
            Arrow {
                from,
                // The arrow of an attempt to reach no agent in particular ends at its own column.
                to: record.receiver.as_deref().map_or(from, &mut column),
                label: record.reason.clone(),
                is_refused: true,
            }
        }
        Seen::Skipped { count } => Arrow {
            from: 0,
            to: 0,
            label: format!("{count} messages passed unseen"),
            is_refused: true,
        },
    });
    let arrows = arrows.collect();
    if columns.is_empty() {
        columns.push("(nobody)".to_owned());
    }
    (columns, arrows)
}

/// A text for Mermaid, in which a few characters have a meaning of their own.
fn mermaid_text(text: &str) -> String {
    let mut safe = String::new();
    for character in excerpt(text, LONGEST).chars() {
        match character {
            '#' | ';' | ':' | '<' | '>' | '&' | '"' | '\\' | '%' | '{' | '}' => {
                // Writing to a string cannot fail.
                let _ = write!(safe, "#{};", u32::from(character));
            }
            _ => safe.push(character),
        }
    }
    safe
}

/// The diagram in the language of Mermaid.
pub(super) fn mermaid(seen: &[Seen]) -> String {
    let (columns, arrows) = laid_out(seen);
    let mut text = "sequenceDiagram\n".to_owned();
    for (number, name) in columns.iter().enumerate() {
        let _ = writeln!(text, "    participant p{number} as {}", mermaid_text(name));
    }
    for arrow in arrows {
        let line = if arrow.is_refused { "--x" } else { "->>" };
        let label = mermaid_text(&arrow.label);
        let _ = writeln!(text, "    p{}{line}p{}: {label}", arrow.from, arrow.to);
    }
    text
}

/// A text for XML.
fn xml_text(text: &str) -> String {
    let mut safe = String::new();
    for character in excerpt(text, LONGEST).chars() {
        match character {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            // XML has no such characters, not even as entities.
            '\u{fffe}' | '\u{ffff}' => safe.push(char::REPLACEMENT_CHARACTER),
            _ => safe.push(character),
        }
    }
    safe
}

/// The diagram as an SVG document.
pub(super) fn svg(seen: &[Seen]) -> String {
    let (columns, arrows) = laid_out(seen);
    let middle = |column: usize| column * COLUMN + COLUMN / 2;
    let (width, height) = (columns.len() * COLUMN, TOP + (arrows.len() + 1) * ROW);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <defs><marker id=\"head\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"4\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, name) in columns.iter().enumerate() {
        let x = middle(number);
        let _ = writeln!(
            text,
            "<text x=\"{x}\" y=\"24\" text-anchor=\"middle\" font-weight=\"bold\">{}</text>\n\
             <line x1=\"{x}\" y1=\"36\" x2=\"{x}\" y2=\"{height}\" stroke=\"#bbb\"/>",
            xml_text(name)
        );
    }
    for (row, arrow) in arrows.iter().enumerate() {
        let y = TOP + row * ROW;
        let (from, to) = (middle(arrow.from), middle(arrow.to));
        let (colour, dashes) = match arrow.is_refused {
            true => ("#c00", " stroke-dasharray=\"5 3\""),
            false => ("black", ""),
        };
        let label = xml_text(&arrow.label);
        // An arrow to its own column is a loop.
        let path = match from == to {
            true => format!("M{from} {y}h30v10h-30"),
            false => format!("M{from} {y}H{to}"),
        };
        let at = if from == to {
            from + 60
        } else {
            from.midpoint(to)
        };
        let above = y - 5;
        let _ = writeln!(
            text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\"{dashes} marker-end=\"url(#head)\"/>\n\
             <text x=\"{at}\" y=\"{above}\" text-anchor=\"middle\" fill=\"{colour}\">{label}</text>"
        );
    }
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests {
    use sealbus_control::RefusalRecord;
    use sealbus_control::traffic::MessageHead;

    use super::*;

    fn head(from: &str, to: &str, performative: &str) -> Seen {
        Seen::Message(MessageHead {
            at: 1,
            from: from.to_owned(),
            to: to.to_owned(),
            channel: None,
            performative: performative.to_owned(),
            conversation: None,
            protocol: None,
            size: 1,
            provenance: "proved".to_owned(),
            on_behalf_of: Vec::new(),
            body: None,
        })
    }

    fn seen() -> Vec<Seen> {
        vec![
            head("buyer@f", "seller@f", "cfp"),
            head("seller@f", "buyer@f", "propose"),
            Seen::Refused(RefusalRecord {
                at: 2,
                who: "<img src=x onerror=alert(1)>;\n    p0->>p1: forged\u{202e}".to_owned(),
                proved: None,
                receiver: Some("seller@f".to_owned()),
                reason: "forged-sender: \"no\" & no".to_owned(),
                count: 1,
                by: None,
            }),
        ]
    }

    #[test]
    fn mermaid_has_a_line_for_each_agent_and_message_and_hostile_names_add_none() {
        let text = mermaid(&seen());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 3 + 3, "{text}");
        assert_eq!(lines[1], "    participant p0 as buyer@f");
        assert_eq!(lines[4], "    p0->>p1: cfp");
        assert_eq!(lines[5], "    p1->>p0: propose");
        assert!(lines[6].starts_with("    p2--xp1: forged-sender"), "{text}");
        assert!(!text.contains('<') && !text.contains('\u{202e}'), "{text}");
    }

    #[test]
    fn svg_is_well_formed_and_holds_text_only() {
        let mut hostile = seen();
        hostile[0] = head("buyer@f", "seller@f", "\u{fffe}\u{ffff}");
        let text = svg(&hostile);
        assert!(!text.contains("<img"), "{text}");
        assert!(!text.contains(['\u{fffe}', '\u{ffff}']), "{text}");
        assert_eq!(text.matches("marker-end").count(), 3);
        assert_eq!(text.matches("text-anchor").count(), 6);
        // Every & begins an entity.
        for part in text.split('&').skip(1) {
            assert!(
                ["lt;", "gt;", "amp;", "quot;"]
                    .iter()
                    .any(|it| part.starts_with(it)),
                "{part}"
            );
        }
    }

    #[test]
    fn nothing_is_drawn_as_nobody() {
        assert!(mermaid(&[]).contains("(nobody)"));
        assert!(svg(&[Seen::Skipped { count: 3 }]).contains("3 messages passed unseen"));
    }
}
