use super::*;

fn remembered() -> Remembered {
    Remembered {
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
    }
}

/// A node that was restarted does not know which agents live in the processes that it takes over. Until one reports, none
/// of them counts as finished.
#[test]
fn a_process_that_was_taken_over_is_not_done_before_it_reports() {
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

/// A Master that takes over asks again for what the process handed over for the former one.
#[test]
fn what_a_process_handed_over_is_there_after_its_end() {
    let processes = Processes::default();
    processes
        .entries
        .lock()
        .insert("p".to_owned(), Entry::new(remembered()));
    let frozen = Frozen {
        agents: vec!["a".to_owned()],
        destination: "node-2".to_owned(),
        bytes: Arc::default(),
    };
    processes.frozen.lock().insert("p".to_owned(), frozen);
    processes
        .with("p", |entry| entry.freezing = Some(Default::default()))
        .unwrap();
    let part = FrozenPart {
        index: 0,
        more: false,
        bytes: sealbus_control::Blob(b"agents".to_vec()),
    };
    processes.frozen_part("p", &part).unwrap();
    processes.entries.lock().remove("p");
    assert_eq!(processes.frozen_for("p", "node-2"), Some(6));
    assert_eq!(processes.frozen_for("p", "node-3"), None);
}
