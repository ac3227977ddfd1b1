//! The lists of `top`, and the line above them.

use std::cmp::Reverse;

use sealbus_window::Board;

use crate::arguments::{TopList, TopSort};

/// The part of the board that is shown, and its order.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) list: TopList,
    pub(super) sort: TopSort,
    pub(super) filter: String,
}

/// The platform in one line.
pub(super) fn summary(board: &Board, platform: &str) -> String {
    let rate: f64 = board
        .processes
        .iter()
        .map(|process| process.sent_rate)
        .sum();
    // A process may say any number.
    let waiting = board.processes.iter().map(|it| it.waiting);
    let waiting = waiting.fold(0, u64::saturating_add);
    let refused = board.processes.iter().map(|it| it.refused);
    let refused = refused.fold(0, u64::saturating_add);
    let mut text = format!(
        "{platform}: {} msg/s, {waiting} waiting, {refused} refused, {} agents in {} processes",
        number(rate),
        board.agents.len(),
        board.processes.len()
    );
    if board.left_out > 0 {
        text += &format!(", {} agents and channels not shown", board.left_out);
    }
    for silent in &board.silent {
        text += &format!(", {} does not answer", silent.node);
    }
    text
}

/// The head and the rows of a list.
pub(super) fn rows(board: &Board, shown: &Shown) -> (&'static [&'static str], Vec<Vec<String>>) {
    let fits = |name: &str| name.contains(&shown.filter);
    match shown.list {
        TopList::Agents => {
            let rows = board.agents.iter().filter(|row| fits(&row.agent));
            let rows = sorted(rows, shown.sort, |row| Rank {
                rate: row.sent_rate + row.received_rate,
                waiting: row.waiting,
                errors: row.refused,
                name: &row.agent,
            });
            let cells = rows.into_iter().map(|row| {
                vec![
                    row.agent.clone(),
                    number(row.sent_rate),
                    number(row.received_rate),
                    row.sent.to_string(),
                    row.received.to_string(),
                    row.waiting.to_string(),
                    row.refused.to_string(),
                    row.node.clone(),
                ]
            });
            const HEAD: &[&str] = &[
                "AGENT", "SENT/S", "GOT/S", "SENT", "GOT", "WAITING", "REFUSED", "NODE",
            ];
            (HEAD, cells.collect())
        }
        TopList::Channels => {
            let rows = board.channels.iter().filter(|row| fits(&row.channel));
            let rows = sorted(rows, shown.sort, |row| Rank {
                rate: row.published_rate,
                waiting: row.subscriptions,
                errors: row.dropped + row.filter_errors,
                name: &row.channel,
            });
            let cells = rows.into_iter().map(|row| {
                vec![
                    row.channel.clone(),
                    number(row.published_rate),
                    row.published.to_string(),
                    row.subscriptions.to_string(),
                    row.dropped.to_string(),
                    row.filter_errors.to_string(),
                ]
            });
            const HEAD: &[&str] = &[
                "CHANNEL",
                "PUBLISHED/S",
                "PUBLISHED",
                "SUBSCRIPTIONS",
                "DROPPED",
                "FILTER ERRORS",
            ];
            (HEAD, cells.collect())
        }
        TopList::Processes => {
            let rows = board.processes.iter().filter(|row| fits(&row.process));
            let rows = sorted(rows, shown.sort, |row| Rank {
                rate: row.sent_rate + row.received_rate,
                waiting: row.waiting,
                errors: row.refused + row.undeliverable,
                name: &row.process,
            });
            let cells = rows.into_iter().map(|row| {
                vec![
                    row.process.clone(),
                    number(row.sent_rate),
                    number(row.received_rate),
                    row.sent.to_string(),
                    row.received.to_string(),
                    row.waiting.to_string(),
                    row.undeliverable.to_string(),
                    row.refused.to_string(),
                    row.node.clone(),
                ]
            });
            const HEAD: &[&str] = &[
                "PROCESS",
                "SENT/S",
                "GOT/S",
                "SENT",
                "GOT",
                "WAITING",
                "UNDELIVERABLE",
                "REFUSED",
                "NODE",
            ];
            (HEAD, cells.collect())
        }
    }
}

/// The values by which a row is sorted.
struct Rank<'a> {
    rate: f64,
    waiting: u64,
    errors: u64,
    name: &'a str,
}

fn sorted<'a, T>(
    rows: impl Iterator<Item = &'a T>,
    sort: TopSort,
    rank: impl Fn(&'a T) -> Rank<'a>,
) -> Vec<&'a T> {
    let mut ranked: Vec<_> = rows.map(|row| (rank(row), row)).collect();
    ranked.sort_by(|(one, _), (two, _)| {
        let by = match sort {
            TopSort::Rate => two.rate.total_cmp(&one.rate),
            TopSort::Waiting => Reverse(one.waiting).cmp(&Reverse(two.waiting)),
            TopSort::Errors => Reverse(one.errors).cmp(&Reverse(two.errors)),
            TopSort::Name => std::cmp::Ordering::Equal,
        };
        by.then_with(|| one.name.cmp(two.name))
    });
    ranked.into_iter().map(|(_, row)| row).collect()
}

/// A rate, for people.
fn number(rate: f64) -> String {
    if rate == 0.0 {
        // The sum of no rates is -0.
        "0".to_owned()
    } else if rate >= 100.0 {
        format!("{rate:.0}")
    } else {
        format!("{rate:.1}")
    }
}

#[cfg(test)]
mod tests {
    use sealbus_window::{AgentRow, ChannelRow, ProcessRow};

    use super::*;

    fn agent(name: &str, rate: f64, waiting: u64, refused: u64) -> AgentRow {
        AgentRow {
            agent: format!("{name}@factory"),
            node: "node-1".to_owned(),
            process: "p.1".to_owned(),
            sent_rate: rate,
            received_rate: 0.0,
            sent: 1,
            received: 1,
            waiting,
            waiting_bytes: 0,
            refused,
        }
    }

    fn process(name: &str, rate: f64, waiting: u64) -> ProcessRow {
        ProcessRow {
            process: name.to_owned(),
            node: "node-1".to_owned(),
            sent_rate: rate,
            received_rate: 0.0,
            sent: 1,
            received: 1,
            waiting,
            undeliverable: 0,
            refused: 0,
        }
    }

    fn names(board: &Board, list: TopList, sort: TopSort, filter: &str) -> Vec<String> {
        let shown = Shown {
            list,
            sort,
            filter: filter.to_owned(),
        };
        let (head, rows) = rows(board, &shown);
        assert!(rows.iter().all(|row| row.len() == head.len()));
        rows.into_iter().map(|row| row[0].clone()).collect()
    }

    #[test]
    fn lists_have_orders_and_filters() {
        let board = Board {
            agents: vec![
                agent("ann", 1.0, 9, 0),
                agent("ben", 200.0, 1, 4),
                agent("new", 0.0, 0, 0),
            ],
            channels: vec![ChannelRow {
                channel: "/tea".to_owned(),
                ..ChannelRow::default()
            }],
            processes: vec![process("p.1", 201.0, 10), process("q.1", 208.0, 0)],
            ..Board::default()
        };
        let agents = |sort, filter| names(&board, TopList::Agents, sort, filter);
        let [ann, ben, new] = ["ann@factory", "ben@factory", "new@factory"];
        assert_eq!(agents(TopSort::Rate, ""), [ben, ann, new]);
        assert_eq!(agents(TopSort::Waiting, ""), [ann, ben, new]);
        assert_eq!(agents(TopSort::Errors, ""), [ben, ann, new]);
        assert_eq!(agents(TopSort::Name, "e"), [ben, new]);
        let processes = names(&board, TopList::Processes, TopSort::Name, "");
        assert_eq!(processes, ["p.1", "q.1"]);
        let channels = names(&board, TopList::Channels, TopSort::Rate, "");
        assert_eq!(channels, ["/tea"]);
        let summary = summary(&board, "factory");
        assert!(
            summary.starts_with("factory: 409 msg/s, 10 waiting"),
            "{summary}"
        );
    }
}
