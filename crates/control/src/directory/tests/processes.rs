//! The nodes that are told of processes.

use super::*;

/// A node is told of processes that use channels if one of its own does, and of the end of a process to which its
/// agents may have links.
#[test]
fn nodes_hear_of_the_processes_that_concern_them_alone() {
    let mut directory = Directory::starting_at(10);
    let mut replicas: Vec<Replica> = (0..NODES).map(|_| Replica::default()).collect();
    for number in 0..NODES {
        directory.set(&name_of(number), node(&name_of(number)));
    }
    for number in 0..MOST_WHOLE + 1 {
        directory.set(&filler(number), at(5));
    }
    directory.joined(contact(1, 7));
    // The first node has a process that uses channels. The second one asks for an agent of a process.
    replicas[0].hear_processes(true);
    for _ in 0..3 {
        for (number, replica) in replicas.iter_mut().enumerate() {
            catch_up(&mut directory, &name_of(number), replica);
        }
    }
    let is_apart = |number: &usize| {
        let holders = replicas[0].holders(&filler(*number));
        !holders[..HOLDERS].contains(&name_of(1))
    };
    let followed = filler((0..MOST_WHOLE).find(is_apart).unwrap());
    replicas[1].follow(&followed);
    catch_up(&mut directory, &name_of(1), &mut replicas[1]);
    assert_eq!(replicas[0].processes(), Some(vec![contact(1, 7)]));
    assert_eq!(replicas[1].processes(), None);
    directory.concerned();

    let nodes = |numbers: &[usize]| {
        let names = numbers.iter().copied().map(name_of);
        Concerned::Nodes(names.collect())
    };
    directory.joined(contact(2, 7));
    assert_eq!(directory.concerned(), nodes(&[0]));
    let news = directory.news_for(&name_of(0)).unwrap();
    assert_eq!(replicas[0].told(news).joined, [contact(2, 7)]);
    assert_eq!(directory.news_for(&name_of(1)), None);

    let holders = replicas[0].holders(&followed)[..HOLDERS].to_vec();
    let ended = contact(3, 7).named();
    directory.ended(ended.clone(), std::slice::from_ref(&followed));
    let mut concerned: BTreeSet<String> = holders.into_iter().collect();
    concerned.insert(name_of(1));
    assert_eq!(directory.concerned(), Concerned::Nodes(concerned.clone()));
    directory.ended(contact(2, 7).named(), std::slice::from_ref(&followed));
    concerned.insert(name_of(0));
    assert_eq!(directory.concerned(), Concerned::Nodes(concerned));
    let news = directory.news_for(&name_of(1)).unwrap();
    assert_eq!(replicas[1].told(news).ended, [ended, contact(2, 7).named()]);
    directory.control_ended(contact(4, 7).named());
    assert_eq!(directory.concerned(), Concerned::All);

    // The last process of the first node that used channels has ended.
    replicas[0].hear_processes(false);
    catch_up(&mut directory, &name_of(0), &mut replicas[0]);
    directory.joined(contact(5, 7));
    assert_eq!(directory.concerned(), nodes(&[]));
    replicas[0].hear_processes(true);
    catch_up(&mut directory, &name_of(0), &mut replicas[0]);
    let all = [1, 5].map(|process| contact(process, 7));
    assert_eq!(replicas[0].processes(), Some(all.to_vec()));
}

/// A subscription is listed when all processes that may publish know of its process, even if another Master takes over.
#[test]
fn a_process_is_told_when_all_nodes_that_hear_have_heard() {
    let mut directory = Directory::starting_at(10);
    let mut replicas: Vec<Replica> = (0..3).map(|_| Replica::default()).collect();
    for number in 0..3 {
        directory.set(&name_of(number), node(&name_of(number)));
    }
    let named = contact(1, 7).named();
    directory.joined(contact(1, 7));
    assert!(!directory.is_told(&named), "a node has said nothing yet");
    replicas[0].hear_processes(true);
    replicas[1].hear_processes(true);
    for (number, replica) in replicas.iter_mut().enumerate() {
        catch_up(&mut directory, &name_of(number), replica);
    }
    assert!(!directory.is_told(&named), "no process has heard of it");
    for (number, replica) in replicas.iter_mut().enumerate() {
        let standing = Standing {
            heard: replica.revision(),
            ..replica.standing()
        };
        replica.answered(directory.answer(&name_of(number), &standing));
    }
    assert!(directory.is_told(&named));
    let unreachable = contact(2, 7).named();
    assert!(!directory.is_told(&unreachable));
    directory.joined(contact(2, 7));
    let named = contact(2, 7).named();
    for (number, replica) in replicas.iter_mut().enumerate().take(2) {
        assert!(!directory.is_told(&named));
        let name = name_of(number);
        let news = directory.news_for(&name).unwrap();
        assert!(news.tells_of_processes());
        directory.heard(&name, news.to);
        replica.told(news);
    }
    assert!(directory.is_told(&named));
    // A node that has only registered may have any processes.
    directory.answer(&name_of(1), &Standing::default());
    assert!(!directory.is_told(&named));
    catch_up(&mut directory, &name_of(1), &mut replicas[1]);
    directory.heard(&name_of(1), replicas[1].revision());
    assert!(directory.is_told(&named));
    // A node that is gone has no processes that publish.
    directory.joined(contact(3, 7));
    let named = contact(3, 7).named();
    for number in 0..2 {
        assert!(!directory.is_told(&named));
        directory.set(&name_of(number), at(0));
    }
    assert!(directory.is_told(&named));
}

/// The single notices to a process add up to the whole directory.
#[test]
fn a_process_that_ended_does_not_join_again() {
    let mut directory = Directory::starting_at(10);
    let mut replica = Replica::default();
    replica.hear_processes(true);
    let mut catch_up = |directory: &mut Directory| {
        let (mut changed, _) = catch_up(directory, "node-1", &mut replica);
        changed.remove(0)
    };
    directory.joined(contact(1, 7));
    assert_eq!(catch_up(&mut directory).joined, [contact(1, 7)]);
    directory.joined(contact(2, 7));
    directory.ended(contact(2, 7).named(), &[]);
    directory.joined(contact(2, 7));
    let changed = catch_up(&mut directory);
    assert_eq!(changed.joined, []);
    assert_eq!(changed.ended, [contact(2, 7).named()]);
    // This Master was restarted, and lacks one process.
    let mut directory = Directory::starting_at(1000);
    directory.joined(contact(3, 7));
    let rules = Rules {
        channels: Vec::new(),
        permission: sealbus_seal::permission::Policy {
            groups: [("sellers".to_owned(), Vec::new())].into(),
            ..Default::default()
        },
        ..Rules::default()
    };
    directory.set_rules(rules.clone());
    let changed = catch_up(&mut directory);
    assert_eq!(changed.joined, [contact(3, 7)]);
    assert_eq!(changed.ended, [contact(1, 7).named()]);
    assert_eq!(changed.rules.as_ref(), Some(&rules));
    assert_eq!(replica.rules(), &rules);
}
