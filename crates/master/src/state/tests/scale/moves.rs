//! Processes that use channels or none, and move.

use super::*;

impl Platform {
    /// Agents of a process begin to use channels, and its node learns of the others.
    pub(super) fn uses_channels(&mut self, process: &str) {
        let node = self.master.process(process).unwrap().1.node.clone();
        self.job(|master, now| master.uses_channels(process, now));
        self.nodes.get_mut(&node).unwrap().hear_processes();
    }

    /// Two processes of each of these nodes begin to use channels.
    pub(super) fn begin_to_use_channels(&mut self, nodes: &[String]) {
        let mut using: BTreeMap<&str, Vec<(String, Vec<String>)>> = BTreeMap::new();
        for group in self.master.groups().values() {
            let process = group.process.as_ref().unwrap();
            if let Some(node) = nodes.iter().find(|node| **node == process.node) {
                let using = using.entry(node).or_default();
                if using.len() < 2 {
                    using.push((process.id.clone(), group.agents.clone()));
                }
            }
        }
        for (process, agents) in using.into_values().flatten() {
            self.users.extend(agents);
            self.uses_channels(&process);
        }
        for _ in 0..3 {
            self.beat();
        }
        self.cost("processes of some nodes begin to use channels");
    }

    /// The Master knows which processes use channels. Returns how many do.
    pub(super) fn check_users(&self) -> usize {
        let processes = self.master.groups().values();
        let processes = processes.filter_map(|group| group.process.as_ref());
        let using: BTreeSet<&String> = processes
            .filter(|process| process.agents.keys().any(|it| self.users.contains(it)))
            .map(|process| &process.id)
            .collect();
        let known = self.master.directory().processes();
        let known: BTreeSet<&String> = known.iter().map(|contact| &contact.process).collect();
        assert_eq!(known, using);
        using.len()
    }

    /// Moves a process of each of these nodes to the next one: so many of them each second.
    pub(super) fn moves(
        &mut self,
        nodes: &[String],
        each_second: usize,
        use_channels: bool,
    ) -> Cost {
        let mut moving: BTreeMap<&str, String> = BTreeMap::new();
        for group in self.master.groups().values() {
            let node = &group.process.as_ref().unwrap().node;
            let agent = group.agents.first().unwrap();
            if self.users.contains(agent) == use_channels
                && let Some(node) = nodes.iter().find(|it| *it == node)
            {
                moving.entry(node).or_insert_with(|| agent.clone());
            }
        }
        assert_eq!(moving.len(), nodes.len());
        let moving = nodes.iter().map(|node| &moving[node.as_str()]);
        let next = nodes.iter().cycle().skip(1);
        let moving: Vec<(&String, &String)> = moving.zip(next).collect();
        self.cost = Cost::default();
        for some in moving.chunks(each_second) {
            for (agent, node) in some {
                self.job(|master, now| master.move_agent(agent, node, now).unwrap());
                self.carry_out();
                self.carry_out();
            }
            self.beat();
        }
        // The former processes stay for a while.
        let leaving = 2 + TimeLimits::default().leaving.as_secs();
        for _ in 0..leaving {
            self.carry_out();
            self.beat();
        }
        for (agent, node) in moving {
            let group = self.master.group_of(agent).unwrap().1;
            assert_eq!(group.processes().count(), 1);
            assert_eq!(group.process.as_ref().unwrap().node, *node);
        }
        let part = match use_channels {
            true => "processes that use channels move",
            false => "processes that use none move",
        };
        self.cost(part)
    }
}
