use super::*;

/// A node that was restarted does not know which agents live in the processes that it takes over. Until one reports, none
/// of them counts as finished.
#[test]
fn a_process_that_was_taken_over_is_not_done_before_it_reports() {
    let remembered = || Remembered {
        launch: Launch {
            process: "p".to_owned(),
            group: "a".to_owned(),
            agents: vec!["a".to_owned()],
            command: Vec::new(),
            directory: None,
            environment: BTreeMap::new(),
            confinement: Default::default(),
            inherits: None,
        },
        pid: None,
        slot: None,
        ticket: None,
        reattach: Vec::new(),
        channels: false,
    };
    let processes = Processes::default();
    let is_done = || processes.with("p", |entry| entry.is_done()).unwrap();
    let entry = Entry::taken_over(remembered());
    processes.entries.lock().insert("p".to_owned(), entry);
    assert!(!is_done());
    processes.reported("p", "a", Some(AgentState::Active));
    assert!(!is_done());
    processes.reported("p", "a", None);
    assert!(is_done());
    // A process that began on this node, and in which no agent ever lived, has nothing to wait for.
    processes
        .entries
        .lock()
        .insert("p".to_owned(), Entry::new(remembered()));
    assert!(is_done());
}
