//! A paper's finding beside ours: what each technique takes, as a multiple of one row, in the paper and here.

use std::fmt::Write;

use crate::papers::report::html::escape;
use crate::papers::report::{digits, middle};
use crate::papers::results::Results;
use crate::papers::scenario::{Column, Finding, Printed, Table};
use crate::papers::system::{Setting, Side, System};

/// A row over the row that the finding names.
struct Factor<'a> {
    system: &'a System,
    setting: &'a Setting,
    here: f64,
    /// The paper's row, and its figure over that of the same row there.
    paper: Option<(&'a str, f64)>,
}

/// All rows over one, in the last column in which that one was measured.
pub(crate) struct Factors<'a> {
    finding: &'a Finding,
    /// The names of the one row: here, and in the paper.
    over: String,
    column: &'a str,
    rows: Vec<Factor<'a>>,
}

impl<'a> Factors<'a> {
    /// Peers, and agents in one process, are left out.
    pub(crate) fn of(table: &'a Table, systems: &'a [System], results: &Results) -> Option<Self> {
        let finding = table.finding.as_ref()?;
        let rows = systems.iter().filter(|it| {
            let is_alone = it.carried_by.is_none() && it.language != "Python";
            is_alone && !matches!(it.side, Side::Peer | Side::Mixed) && table.includes(it)
        });
        let rows: Vec<(&System, &Setting)> = rows
            .flat_map(|system| system.ways.iter().map(move |setting| (system, setting)))
            .filter(|(_, setting)| !setting.one_process)
            .collect();
        let figure = |(system, setting): (&System, &Setting), column: &Column| {
            let middle = middle(results, table, system, setting, &column.title)?.ok()?;
            Some(middle.spread.median).filter(|it| *it > 0.0)
        };
        let over = *rows.iter().find(|(system, setting)| {
            system.id == finding.system && setting.name == finding.setting
        })?;
        let columns = table.columns.iter().enumerate();
        let (place, column, base) = columns
            .rev()
            .find_map(|(place, column)| Some((place, column, figure(over, column)?)))?;
        let printed = |(system, setting): (&System, &Setting)| {
            let row = table.printed.iter();
            row.rev()
                .find(|it| it.setting.is_some() && it.is_beside(system, setting))
        };
        let number = |row: &Printed| row.cells.get(place)?.parse::<f64>().ok();
        let base_there = printed(over).and_then(number);
        let factor = |row: (&'a System, &'a Setting)| {
            let there = printed(row);
            Some(Factor {
                system: row.0,
                setting: row.1,
                here: figure(row, column)? / base,
                paper: there.and_then(|it| Some((it.system.as_str(), number(it)? / base_there?))),
            })
        };
        Some(Self {
            finding,
            over: format!("{}, {}", over.0.title, over.1.name),
            column: &column.title,
            rows: rows.into_iter().filter_map(factor).collect(),
        })
    }

    /// The four cells of each row, as text.
    fn cells(&self) -> impl Iterator<Item = (bool, [String; 4])> {
        self.rows.iter().map(|it| {
            let (name, there) = it.paper.map_or((String::new(), String::new()), |paper| {
                (paper.0.to_owned(), digits(paper.1))
            });
            let row = format!("{}, {}", it.system.title, it.setting.name);
            let is_ours = it.system.side == Side::Ours;
            (is_ours, [row, digits(it.here), name, there])
        })
    }

    fn head(&self) -> [String; 4] {
        [
            format!("{} agents", self.column),
            format!("× {}", self.over),
            "the paper’s row".to_owned(),
            "× in the paper".to_owned(),
        ]
    }

    /// Writes the finding as Markdown.
    pub(crate) fn write(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\n{}\n\n| {} |\n|---|---|---|---|",
            self.finding.text.trim(),
            self.head().join(" | ")
        );
        for (is_ours, mut cells) in self.cells() {
            if is_ours {
                cells[0] = format!("**{}**", cells[0]);
            }
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }

    /// Writes the finding as HTML.
    pub(crate) fn draw(&self, page: &mut String) {
        let text = escape(self.finding.text.trim());
        let head = self.head().map(|it| format!("<th>{}</th>", escape(&it)));
        let _ = writeln!(page, "<p>{text}</p>\n<table>\n<tr>{}</tr>", head.concat());
        for (is_ours, cells) in self.cells() {
            let class = if is_ours { "ours" } else { "mixed" };
            let cells = cells.map(|it| format!("<td>{}</td>", escape(&it)));
            let _ = writeln!(page, "<tr class=\"{class}\">{}</tr>", cells.concat());
        }
        page.push_str("</table>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::results::{Figures, Key, Measurement, Outcome};

    const TABLE: &str = r#"
        paper = "One"
        title = "Parcels"
        about = "."
        shows = "total_time"
        kind = "round_trip"
        shape = "many_to_one"
        size = 128
        messages = 1
        patience_s = 1
        quick = 1
        full = 1
        columns = [{ title = "1" }, { title = "2", senders = 2 }, { title = "4", senders = 4 }]
        finding = { text = "Wax costs much.", system = "cart", setting = "open" }
        printed = [
            { system = "nothing", cells = ["10", "20", "40"], beside = "cart", setting = "open" },
            { system = "a seal", cells = ["30", "80"], beside = "cart", setting = "waxed" },
        ]
    "#;

    fn system(id: &str, side: &str, settings: &[&str]) -> System {
        let ways = settings
            .iter()
            .map(|it| format!("[[setting]]\nname = \"{it}\"\nclass = \"none\"\n"));
        let text = format!(
            "title = \"{id}\"\nside = \"{side}\"\nlanguage = \"Rust\"\nsettings = \".\"\n{}",
            ways.collect::<String>()
        );
        let system: System = toml::from_str(&text).unwrap();
        System {
            id: id.to_owned(),
            ..system
        }
    }

    fn measured(system: &str, setting: &str, column: &str, seconds: f64) -> Measurement {
        let key = Key {
            table: "p1".to_owned(),
            system: system.to_owned(),
            setting: setting.to_owned(),
            column: column.to_owned(),
            repetition: 0,
        };
        let figures = Figures {
            seconds,
            ..Figures::default()
        };
        Measurement {
            key,
            took_s: 0.0,
            measured: String::new(),
            commit: String::new(),
            outcome: Outcome::Measured(Box::new(figures)),
        }
    }

    #[test]
    fn rows_stand_over_one_in_the_last_column_that_it_has() {
        let table: Table = toml::from_str(TABLE).unwrap();
        let table = Table {
            id: "p1".to_owned(),
            ..table
        };
        let systems = [
            system("cart", "technique", &["open", "waxed"]),
            system("post", "ours", &["registered"]),
            system("pigeon", "peer", &["by air"]),
        ];
        let mut results = Results::default();
        assert!(Factors::of(&table, &systems, &results).is_none());
        for it in [
            measured("cart", "open", "1", 1.0),
            measured("cart", "open", "2", 2.0),
            measured("cart", "waxed", "2", 7.0),
            measured("post", "registered", "2", 3.0),
            measured("post", "registered", "4", 9.0),
            measured("pigeon", "by air", "2", 1.0),
        ] {
            results.put(it);
        }
        let mut text = String::new();
        let factors = Factors::of(&table, &systems, &results).unwrap();
        factors.write(&mut text);
        let expected = "
Wax costs much.

| 2 agents | × cart, open | the paper’s row | × in the paper |
|---|---|---|---|
| cart, open | 1.00 | nothing | 1.00 |
| cart, waxed | 3.50 | a seal | 4.00 |
| **post, registered** | 1.50 |  |  |
";
        assert_eq!(text, expected);
    }
}
