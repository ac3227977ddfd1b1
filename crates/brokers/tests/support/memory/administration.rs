//! The administration of the broker in memory.

use sealbus_brokers::{
    Account, Administration, BrokerFailure, DeadLetter, Death, Login, Member, Queue, Receiver,
    WaitingCounts,
};
use sealbus_bus::BoxFuture;

use super::{MemoryBroker, Work};

/// The number of dead letters, or of messages of an ended agent, that are taken together.
const PART: usize = 20;

/// The answer to a request of the Master.
type Asked<'a, T> = BoxFuture<'a, Result<T, BrokerFailure>>;

fn answer<'a, T: Send + 'a>(value: T) -> Asked<'a, T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Administration for MemoryBroker {
    fn prepare<'a>(&'a self, _: Option<&'a Login>) -> Asked<'a, ()> {
        answer(())
    }

    fn open_queue<'a>(&'a self, queue: &'a Queue) -> Asked<'a, ()> {
        let mut state = self.state();
        state.queues.entry(queue.clone()).or_default();
        state.bindings.insert(queue.owner.clone(), queue.clone());
        answer(())
    }

    fn admit<'a>(&'a self, account: &'a Account) -> Asked<'a, ()> {
        let mut state = self.state();
        if !state.accounts.contains(account) {
            state.accounts.push(account.clone());
        }
        answer(())
    }

    fn dismiss<'a>(&'a self, account: &'a Account) -> Asked<'a, ()> {
        let mut state = self.state();
        state.accounts.retain(|known| known != account);
        let user = account.identity.to_string();
        state.cut_where(|connection| connection.user.as_ref() == Some(&user));
        answer(())
    }

    fn accounts(&self) -> Asked<'_, Vec<Account>> {
        answer(self.state().accounts.clone())
    }

    fn queues(&self) -> Asked<'_, Vec<Queue>> {
        let mut queues: Vec<_> = self.state().queues.keys().cloned().collect();
        queues.sort();
        answer(queues)
    }

    fn is_read<'a>(&'a self, queue: &'a Queue) -> Asked<'a, bool> {
        answer(self.readers(queue) > 0)
    }

    fn depth<'a>(&'a self, queue: &'a Queue) -> Asked<'a, Option<u64>> {
        let state = self.state();
        let held: usize = state
            .connections
            .values()
            .map(|connection| match &connection.work {
                Work::Receives(it) if it.queue == *queue => it.open.len(),
                _ => 0,
            })
            .sum();
        let queue = state.queues.get(queue);
        answer(queue.map(|queue| (queue.waiting.len() + held) as u64))
    }

    fn remove_queue<'a>(&'a self, queue: &'a Queue) -> Asked<'a, ()> {
        let mut state = self.state();
        state.queues.remove(queue);
        state.bindings.retain(|_, bound| bound != queue);
        state.cut_where(
            |connection| matches!(&connection.work, Work::Receives(it) if it.queue == *queue),
        );
        answer(())
    }

    fn bury<'a>(&'a self, queue: &'a Queue) -> Asked<'a, usize> {
        let mut state = self.state();
        let mut buried = 0;
        while buried < PART
            && let Some(there) = state.queues.get_mut(queue)
            && let Some((_, message)) = there.waiting.pop_first()
        {
            state.bury(message, &queue.owner, Death::Left);
            buried += 1;
        }
        answer(buried)
    }

    fn take_dead(&self) -> Asked<'_, Vec<DeadLetter>> {
        let mut state = self.state();
        let count = PART.min(state.dead.len());
        answer(state.dead.drain(..count).collect())
    }

    fn members(&self) -> Asked<'_, Vec<Member>> {
        answer(vec![Member {
            name: "memory".to_owned(),
            running: true,
            memory_alarm: false,
            disk_alarm: false,
        }])
    }

    fn waiting(&self) -> Asked<'_, WaitingCounts> {
        let state = self.state();
        let mut agents = Vec::new();
        for (of, queue) in &state.queues {
            if let Receiver::Agent(name) = &of.owner
                && !queue.waiting.is_empty()
            {
                agents.push((name.to_string(), queue.waiting.len() as u64));
            }
        }
        agents.sort();
        answer(WaitingCounts {
            agents,
            dead_letters: state.dead_so_far,
        })
    }
}
