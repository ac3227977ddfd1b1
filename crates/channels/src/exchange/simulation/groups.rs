//! Queue groups in the simulation: the events that a member of each group must handle, and their outcomes.

use super::checks::passes;
use super::*;

/// The events that the members of all groups have taken and handled so far.
#[derive(Default)]
pub(super) struct Shared {
    /// The texts that came unmarked, by group.
    unmarked: BTreeSet<(String, String)>,
    handled: BTreeSet<(String, String)>,
}

fn name(key: &GroupKey) -> String {
    format!("{} on {} if {}", key.name, key.pattern, key.filter)
}

/// The group of a subscription.
pub(super) fn key_of(consumer: &Consumer) -> Option<GroupKey> {
    let options = &consumer.options;
    Some(GroupKey {
        name: options.group.as_deref()?.into(),
        pattern: options.pattern.clone(),
        filter: options.filter.clone(),
    })
}

impl Shared {
    /// Notes an event that a member got and that says that no member had it before.
    pub(super) fn take_unmarked(&mut self, key: &GroupKey, text: &str) {
        let is_new = self.unmarked.insert((name(key), text.to_owned()));
        assert!(
            is_new,
            "{text} comes to two members of {}, unmarked",
            name(key)
        );
    }

    pub(super) fn handle(&mut self, key: &GroupKey, texts: Vec<String>) {
        let name = name(key);
        self.handled
            .extend(texts.into_iter().map(|text| (name.clone(), text)));
    }

    pub(super) fn is_handled(&self, key: &GroupKey, text: &str) -> bool {
        self.handled.contains(&(name(key), text.to_owned()))
    }
}

impl World {
    pub(super) fn join_a_group(&mut self, options: &mut SubscriptionOptions) {
        options.group = Some(format!("g{}", self.random.below(2)));
        options.prefetch = 1 + self.random.below(4) as u32;
        options.policy = FlowPolicy::PushBack;
    }

    /// The groups that get an event, as far as its publisher's process knows them.
    pub(super) fn groups_for(
        &self,
        index: usize,
        groups: &[u32],
        header: &ChannelHeader,
        view: &AclMessageRef<'_>,
    ) -> Vec<GroupKey> {
        let known = &self.processes[index].exchange.groups;
        let wanted = groups
            .iter()
            .filter(|id| passes(known.filter(**id), header, view));
        wanted.filter_map(|id| known.key(*id).cloned()).collect()
    }

    /// Waits until events that no member may have are back with their publishers.
    pub(super) fn wait_for_groups(&mut self) {
        for _ in 0..40 {
            let is_held = |it: &Process| it.exchange.groups.held_bytes() > 0;
            if !self.processes.iter().any(is_held) {
                return;
            }
            self.run(self.now + Duration::from_secs(1));
            self.read_all(true);
        }
    }
}
