//! Measurements of one operator on one fleet.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::Client;

use super::bare::BareLoop;
use super::fleet::{self, Cards, FEW};
use super::process::Memory;
use super::report::Figure;
use super::spec_watch::SpecWatch;
use super::subject::Subject;

/// Time for which the idle operator is observed.
pub(crate) const IDLE: Duration = Duration::from_secs(20);

/// Deadline for a change of the whole fleet.
const DEADLINE: Duration = Duration::from_hours(1);

/// Number of repetitions, of which the median is reported, and deadlines.
#[derive(Clone, Copy)]
pub(crate) struct Repetitions {
    /// Repetitions of the policy for all nodes.
    pub(crate) all: usize,
    /// Repetitions of all other measurements.
    pub(crate) small: usize,
    /// Deadline for cards and nodes that appear late.
    pub(crate) late: Duration,
}

/// Results.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    /// `None` if the operator is not compared with the bare loop.
    pub(crate) bare: Option<BareFigures>,
    pub(crate) all: f64,
    pub(crate) all_cpu: f64,
    pub(crate) few: FewFigures,
    pub(crate) late_card: Figure,
    pub(crate) late_node: Figure,
    pub(crate) idle: usize,
    pub(crate) memory: Memory,
}

/// Results of the bare loop, which alternates with the operator so that both run under the same conditions.
#[derive(Debug, Clone)]
pub(crate) struct BareFigures {
    pub(crate) all: f64,
    pub(crate) few_first: f64,
    pub(crate) few_last: f64,
    /// Time of one write.
    pub(crate) one: f64,
}

/// Times of all runs of the bare loop.
#[derive(Default)]
pub(crate) struct BareTimes {
    all: Vec<f64>,
    few_first: Vec<f64>,
    few_last: Vec<f64>,
    one: Vec<f64>,
}

/// Results of a change that affects few nodes.
#[derive(Debug, Clone)]
pub(crate) struct FewFigures {
    pub(crate) first: f64,
    pub(crate) last: f64,
    pub(crate) writes: f64,
    pub(crate) cpu: f64,
}

/// Operator with the fleet on which it is measured.
pub(crate) struct OperatorBenchmark<'a> {
    pub(crate) client: &'a Client,
    pub(crate) namespace: &'a str,
    pub(crate) nodes: usize,
    pub(crate) subject: &'a mut Subject,
    pub(crate) watch: &'a mut SpecWatch,
    pub(crate) bare: Option<(BareLoop, BareTimes)>,
}

impl OperatorBenchmark<'_> {
    pub(crate) async fn measure(&mut self, repetitions: Repetitions) -> Result<Figures> {
        let (all, all_cpu) = self.policy_for_all(repetitions.all).await?;
        let few = self.policy_for_few(repetitions.small).await?;
        let late_card = self.late_cards(repetitions).await?;
        let late_node = self.late_nodes(repetitions).await?;
        let idle = self.subject.observe(IDLE).await?;
        for request in idle.iter().take(5) {
            eprintln!("bench:   while idle: {} {}", request.verb, request.resource());
        }
        let memory = self.subject.memory()?;
        let bare = self.bare.take().map(|(_, times)| times.figures());
        Ok(Figures { bare, all, all_cpu, few, late_card, late_node, idle: idle.len(), memory })
    }

    /// Measures a policy for all nodes, which is kept.
    async fn policy_for_all(&mut self, repetitions: usize) -> Result<(f64, f64)> {
        let (mut times, mut cpu) = (Vec::new(), Vec::new());
        for attempt in 0..repetitions {
            if attempt > 0 {
                self.delete_policy("all", self.nodes).await?;
            }
            if let Some((bare, times)) = &mut self.bare {
                times.all.push(bare.run(self.nodes).await?.last.as_secs_f64());
            }
            let before = self.start_measuring()?;
            let started = Instant::now();
            fleet::create_policy(self.client, self.namespace, fleet::policy_for_all()).await?;
            let changes = self.watch.changes(started, fleet::names(self.nodes), DEADLINE).await?;
            times.push(changes.with_context(|| self.timeout_message())?.last.as_secs_f64());
            self.subject.settle().await?;
            cpu.push(self.cpu_since(before)?);
        }
        Ok((median(times), median(cpu)))
    }

    async fn policy_for_few(&mut self, repetitions: usize) -> Result<FewFigures> {
        let mut figures = Vec::new();
        for _ in 0..repetitions {
            if let Some((bare, times)) = &mut self.bare {
                let few = bare.run(FEW).await?;
                times.few_first.push(few.first.as_secs_f64());
                times.few_last.push(few.last.as_secs_f64());
            }
            let before = self.start_measuring()?;
            let started = Instant::now();
            fleet::create_policy(self.client, self.namespace, fleet::policy_for_few()).await?;
            let changes = self.watch.changes(started, fleet::names(FEW), DEADLINE).await?;
            let changes = changes.with_context(|| self.timeout_message())?;
            let requests = self.subject.settle().await?;
            let writes = requests.iter().filter(|request| request.is_write()).count();
            figures.push(FewFigures {
                first: changes.first.as_secs_f64(),
                last: changes.last.as_secs_f64(),
                writes: f64::from(u32::try_from(writes)?),
                cpu: self.cpu_since(before)?,
            });
            self.delete_policy("few", FEW).await?;
        }
        let median_of = |part: fn(&FewFigures) -> f64| median(figures.iter().map(part).collect());
        Ok(FewFigures {
            first: median_of(|few| few.first),
            last: median_of(|few| few.last),
            writes: median_of(|few| few.writes),
            cpu: median_of(|few| few.cpu),
        })
    }

    /// Measures a third card that appears on a node.
    async fn late_cards(&mut self, repetitions: Repetitions) -> Result<Figure> {
        let cards = Cards { count: Cards::FEW.count + 1, ..Cards::FEW };
        let mut times = Vec::new();
        for attempt in 0..repetitions.small {
            if let Some((bare, times)) = &mut self.bare {
                times.one.push(bare.run(1).await?.last.as_secs_f64());
            }
            let name = fleet::node_name(FEW + attempt);
            self.start_measuring()?;
            let started = Instant::now();
            fleet::report(self.client, self.namespace, &name, cards).await?;
            let Some(changes) = self.watch.changes(started, [name], repetitions.late).await? else {
                return Ok(Figure::MoreThan(repetitions.late.as_secs_f64()));
            };
            times.push(changes.last.as_secs_f64());
            self.subject.settle().await?;
        }
        Ok(Figure::Is(median(times)))
    }

    /// Measures a node that appears late, whose agent reports as soon as the node state exists.
    async fn late_nodes(&mut self, repetitions: Repetitions) -> Result<Figure> {
        let mut times = Vec::new();
        for number in self.nodes..self.nodes + repetitions.small {
            let name = fleet::node_name(number);
            let time = self.late_node(number, repetitions.late).await?;
            fleet::delete_node(self.client, self.namespace, &name).await?;
            self.subject.settle().await?;
            match time {
                Some(time) => times.push(time),
                None => return Ok(Figure::MoreThan(repetitions.late.as_secs_f64())),
            }
        }
        Ok(Figure::Is(median(times)))
    }

    /// Returns the time that the operator takes: from the node to its node state, and from the report to the spec.
    async fn late_node(&mut self, number: usize, limit: Duration) -> Result<Option<f64>> {
        let name = fleet::node_name(number);
        self.start_measuring()?;
        let started = Instant::now();
        fleet::create_nodes(self.client, number..number + 1).await?;
        let created = self.watch.changes(started, [name.clone()], limit).await?;
        let created =
            created.with_context(|| format!("timed out waiting for the node state of {name}"))?.last;
        let started = Instant::now();
        fleet::report(self.client, self.namespace, &name, Cards::FEW).await?;
        let written = self.watch.changes(started, [name], limit).await?;
        Ok(written.map(|written| (created + written.last).as_secs_f64()))
    }

    async fn delete_policy(&mut self, name: &str, affected: usize) -> Result<()> {
        self.start_measuring()?;
        let started = Instant::now();
        fleet::delete_policy(self.client, self.namespace, name).await?;
        let changes = self.watch.changes(started, fleet::names(affected), DEADLINE).await?;
        changes.with_context(|| self.timeout_message())?;
        self.subject.settle().await?;
        Ok(())
    }

    /// Discards earlier changes and returns the CPU time so far.
    fn start_measuring(&mut self) -> Result<Duration> {
        self.watch.catch_up();
        self.subject.cpu_time()
    }

    fn cpu_since(&self, before: Duration) -> Result<f64> {
        Ok(self.subject.cpu_time()?.saturating_sub(before).as_secs_f64())
    }

    fn timeout_message(&self) -> String {
        format!("timed out waiting for node states\n{}", self.subject.log_tail())
    }

    /// Checks that the operator has written the same as the bare loop.
    pub(crate) async fn compare_with_bare_loop(&self) -> Result<()> {
        let name = fleet::node_name(self.nodes - 1);
        let state = fleet::states(self.client, self.namespace).get(&name).await?;
        let (written, expected) = (serde_json::to_value(&state.spec)?, fleet::spec_for_all(Cards::FEW));
        ensure!(
            written["interfaces"] == expected["interfaces"],
            "{name}: the operator wrote {written:#}, expected {expected:#}"
        );
        Ok(())
    }
}

impl BareTimes {
    fn figures(self) -> BareFigures {
        BareFigures {
            all: median(self.all),
            few_first: median(self.few_first),
            few_last: median(self.few_last),
            one: median(self.one),
        }
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(vec![5.0]) - 5.0).abs() < f64::EPSILON);
    }
}
