//! Costly filters: they cost the process that has them, and take nothing from others.

use sealbus_seal::permission::Policy;

use super::*;
use crate::qos::Persistence;

fn dates() -> SubscriptionOptions {
    SubscriptionOptions::new(ChannelPattern::new("/dates").unwrap())
}

/// A filter that every event passes, at a cost below the limit. Six of them cost more than publishers spend on a process.
fn costly() -> String {
    let numbers: Vec<String> = (0..80).map(|it| it.to_string()).collect();
    let list = format!("[{}]", numbers.join(","));
    format!("{list}.all(a, {list}.all(b, a + b >= 0))")
}

fn subscribe(
    scene: &mut Scene,
    at: usize,
    name: &str,
    options: SubscriptionOptions,
) -> Arc<Consumer> {
    let now = scene.now();
    let agent = format!("{name}@factory").into();
    scene.exchanges[at].subscribe(&agent, options, now).unwrap()
}

/// Subscribes this many times in the second process.
fn subscribe_all(
    scene: &mut Scene,
    count: usize,
    options: &SubscriptionOptions,
) -> Vec<Arc<Consumer>> {
    (0..count)
        .map(|it| subscribe(scene, 1, &format!("costly-{it}"), options.clone()))
        .collect()
}

fn waiting(consumers: &[Arc<Consumer>]) -> Vec<usize> {
    consumers.iter().map(|it| it.counts().0).collect()
}

fn errors(consumer: &Consumer) -> u64 {
    consumer.counts().2.filter_errors
}

/// The number of filter errors that publishers of the first process have counted.
fn counted(scene: &mut Scene) -> u64 {
    let reports = scene.exchanges[0].channel_reports();
    reports.iter().map(|it| it.filter_errors).sum()
}

/// The number of subscriptions of the second process that the first one knows, and of their different filters.
fn known(scene: &Scene) -> (usize, usize) {
    let mut peers = scene.exchanges[0].peers.values();
    let peer = peers.next().unwrap();
    (peer.subscriptions.len(), peer.filters.len())
}

#[test]
fn costly_groups_of_one_process_take_nothing_from_other_groups() {
    let mut scene = Scene::new(3);
    let strangers: Vec<_> = (0..7)
        .map(|number| {
            let filter = format!("{} || 'x' == '{number}'", costly());
            let options = dates().filtered(filter).grouped(format!("group-{number}"));
            subscribe(&mut scene, 1, "stranger", options)
        })
        .collect();
    let workers = dates().filtered("content == 'x'").grouped("workers");
    let other = dates().filtered("content == 'x'").grouped("others");
    // The stranger opens the group of the workers before they do.
    let joined = subscribe(&mut scene, 1, "stranger", workers.clone());
    assert!(scene.waits());
    scene.carry(0, 1);
    let worker = subscribe(&mut scene, 2, "worker", workers);
    let other = subscribe(&mut scene, 2, "other", other);
    scene.carry(0, 2);
    scene.reaches(0);
    scene.carry(0, 1);
    scene.carry(0, 2);
    assert_eq!(other.counts().0, 1);
    assert_eq!(joined.counts().0 + worker.counts().0, 1);
    // The last of the stranger's groups is over the limit, and the stranger is told.
    assert_eq!(waiting(&strangers), [1, 1, 1, 1, 1, 1, 0]);
    assert_eq!((errors(&strangers[6]), counted(&mut scene)), (1, 1));
}

#[test]
fn a_process_evaluates_its_costly_filters_itself_when_an_event_is_kept() {
    let mut scene = Scene::new(2);
    let all = subscribe_all(&mut scene, 40, &dates().filtered(costly()));
    let picky = subscribe(&mut scene, 1, "picky", dates().filtered("content == 'y'"));
    let mut durable = dates();
    durable.durable = Some("from-the-log".to_owned());
    let reader = subscribe(&mut scene, 1, "reader", durable);
    assert!(scene.waits());
    scene.carry(0, 1);
    let published = scene.publish_as(Qos {
        persistence: Persistence::Persistent,
        ..Qos::default()
    });
    assert!(matches!(published, Ok(Attempt::Done(reach)) if reach.processes == 1));
    scene.carry(0, 1);
    assert_eq!(waiting(&all), [1; 40]);
    // The last subscription gets the event from the log.
    assert_eq!((picky.counts().0, reader.counts().0), (0, 0));
    assert_eq!(counted(&mut scene), 0);
    assert!(all.iter().all(|it| errors(it) == 0));
}

#[test]
fn a_process_evaluates_its_costly_filters_itself_when_it_is_asked() {
    let mut scene = Scene::new(2);
    let all = subscribe_all(&mut scene, 40, &dates().answering().filtered(costly()));
    let picky = dates().answering().filtered("content == 'y'");
    let picky = subscribe(&mut scene, 1, "picky", picky);
    assert!(scene.waits());
    scene.carry(0, 1);
    let publisher: Arc<str> = "publisher@factory".into();
    let message = AclMessage::new(Performative::QueryRef)
        .with_sender(sealbus_bus::aid_of(&publisher))
        .with_content("x");
    let publication = Publication {
        publisher: &publisher,
        channel: &ChannelPath::new("/dates").unwrap(),
        qos: &Qos::default(),
        message: &Arc::new(message),
        kept: None,
        receipt: None,
        turn: Turn::default(),
    };
    let now = scene.now();
    let asked = scene.exchanges[0].request(&publication, Duration::from_secs(9), None, now);
    let Ok(Attempt::Done(asked)) = asked else {
        panic!("the question waits");
    };
    scene.carry(0, 1);
    assert_eq!(waiting(&all), [1; 40]);
    assert_eq!(picky.counts().0, 0);
    assert_eq!(counted(&mut scene), 0);
    // Nobody waits for an answer of the agent whose filter the request does not pass.
    let asking = &scene.exchanges[0].asking[&asked.id];
    assert_eq!(asking.declined, [Arc::<str>::from("picky@factory")]);
    assert_eq!(asking.awaiting.len(), 40);
}

#[test]
fn a_costly_filter_is_evaluated_a_few_times_when_its_agent_moves_away() {
    let mut scene = Scene::new(2);
    let all = subscribe_all(&mut scene, 10, &dates().filtered(costly()));
    assert!(scene.waits());
    scene.carry(0, 1);
    for _ in 0..9 {
        assert!(!scene.waits());
    }
    // The events are under way, in frames that name no subscription.
    assert_eq!(scene.send(0, 1).len(), 9);
    let (mover, now) = (&all[0], scene.now());
    scene.exchanges[1].set_resting(&mover.agent, true);
    scene.exchanges[1].unsubscribe(mover.id, Ended::Cancelled, now);
    for frame in scene.send(1, 0) {
        scene.arrive(1, 0, frame);
    }
    let outcomes = scene.exchanges[0].take_outcomes().into_iter();
    let returned = outcomes.filter(|it| matches!(it, Outcome::Failed { .. }));
    assert_eq!(returned.count(), 2);
}

#[test]
fn the_filters_of_one_process_are_shared_and_have_limited_room() {
    let mut scene = Scene::new(2);
    let large = |number: usize| {
        let filter = format!(r"content.matches(r'\w{{4}}') || 'x' == '{number}'");
        dates().filtered(filter)
    };
    subscribe_all(&mut scene, 5, &large(1));
    let second = subscribe(&mut scene, 1, "second", large(2));
    // There is room for the patterns of two filters.
    subscribe(&mut scene, 1, "third", large(3));
    assert!(scene.waits());
    scene.carry(0, 1);
    assert_eq!(known(&scene), (6, 2));
    let now = scene.now();
    scene.exchanges[1].unsubscribe(second.id, Ended::Cancelled, now);
    subscribe(&mut scene, 1, "third", large(4));
    scene.carry(0, 1);
    assert_eq!(known(&scene), (6, 2));
}

#[test]
fn a_filter_of_an_agent_that_may_not_subscribe_is_not_compiled() {
    let mut scene = Scene::new(2);
    let policy: Policy = toml::from_str(
        r#"
        [[channel]]
        deny = { agents = ["barred"], do = ["subscribe"], on = ["/dates"] }
        "#,
    )
    .unwrap();
    let platform = PlatformName::new("factory").unwrap();
    let rules = ChannelPermissions::compile(&policy, &platform).unwrap();
    scene.exchanges[0].set_permissions(Arc::new(rules));
    subscribe(&mut scene, 1, "barred", dates().filtered("content == 'x'"));
    subscribe(&mut scene, 1, "reader", dates().filtered("content == 'y'"));
    assert!(scene.waits());
    scene.carry(0, 1);
    assert_eq!(known(&scene), (1, 1));
}
