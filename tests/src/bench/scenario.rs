//! The measurements of one operator on one fleet.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::Client;

use super::bare::BareLoop;
use super::fleet::{self, Cards, FEW};
use super::process::Memory;
use super::report::Figure;
use super::subject::Subject;
use super::watched::Watched;

/// So long the idle operator is looked at.
pub(crate) const IDLE: Duration = Duration::from_secs(20);

/// Nobody needs longer for a whole fleet.
const LONGEST: Duration = Duration::from_hours(1);

/// How often, and how long, something is tried. Of several tries the median counts.
#[derive(Clone, Copy)]
pub(crate) struct Tries {
    /// The policy for all nodes.
    pub(crate) all: usize,
    /// Everything smaller.
    pub(crate) small: usize,
    /// When to give up waiting for what appears late.
    pub(crate) late: Duration,
}

/// What came out.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    /// Absent for an operator that is not compared with it.
    pub(crate) bare: Option<BareFigures>,
    pub(crate) all: f64,
    pub(crate) all_cpu: f64,
    pub(crate) few: FewFigures,
    pub(crate) late_card: Figure,
    pub(crate) late_node: Figure,
    pub(crate) idle: usize,
    pub(crate) memory: Memory,
}

/// The bare loop, in turns with the operator, so that both meet the same machine.
#[derive(Debug, Clone)]
pub(crate) struct BareFigures {
    pub(crate) all: f64,
    pub(crate) few_first: f64,
    pub(crate) few_last: f64,
    /// One write.
    pub(crate) one: f64,
}

/// What the bare loop took, time by time.
#[derive(Default)]
pub(crate) struct BareTimes {
    all: Vec<f64>,
    few_first: Vec<f64>,
    few_last: Vec<f64>,
    one: Vec<f64>,
}

/// A change that touches few nodes.
#[derive(Debug, Clone)]
pub(crate) struct FewFigures {
    pub(crate) first: f64,
    pub(crate) last: f64,
    pub(crate) writes: f64,
    pub(crate) cpu: f64,
}

/// An operator, and the fleet it is measured on.
pub(crate) struct Scenario<'a> {
    pub(crate) client: &'a Client,
    pub(crate) namespace: &'a str,
    pub(crate) nodes: usize,
    pub(crate) subject: &'a mut Subject,
    pub(crate) watched: &'a mut Watched,
    pub(crate) bare: Option<(BareLoop, BareTimes)>,
}

impl Scenario<'_> {
    pub(crate) async fn measure(&mut self, tries: Tries) -> Result<Figures> {
        let (all, all_cpu) = self.policy_for_all(tries.all).await?;
        let few = self.policy_for_few(tries.small).await?;
        let late_card = self.late_cards(tries).await?;
        let late_node = self.late_nodes(tries).await?;
        let idle = self.subject.observe(IDLE).await?;
        for request in idle.iter().take(5) {
            eprintln!("bench:   while idle: {} {}", request.verb, request.resource());
        }
        let memory = self.subject.memory()?;
        let bare = self.bare.take().map(|(_, times)| times.figures());
        Ok(Figures { bare, all, all_cpu, few, late_card, late_node, idle: idle.len(), memory })
    }

    /// Leaves the policy in place.
    async fn policy_for_all(&mut self, tries: usize) -> Result<(f64, f64)> {
        let (mut times, mut cpu) = (Vec::new(), Vec::new());
        for attempt in 0..tries {
            if attempt > 0 {
                self.delete_policy("all", self.nodes).await?;
            }
            if let Some((bare, times)) = &mut self.bare {
                times.all.push(bare.run(self.nodes).await?.last.as_secs_f64());
            }
            let before = self.begin()?;
            let started = Instant::now();
            fleet::create_policy(self.client, self.namespace, fleet::policy_for_all()).await?;
            let changes = self.watched.changes(started, fleet::names(self.nodes), LONGEST).await?;
            times.push(changes.with_context(|| self.not_written())?.last.as_secs_f64());
            self.subject.settle().await?;
            cpu.push(self.cpu_since(before)?);
        }
        Ok((median(times), median(cpu)))
    }

    async fn policy_for_few(&mut self, tries: usize) -> Result<FewFigures> {
        let mut figures = Vec::new();
        for _ in 0..tries {
            if let Some((bare, times)) = &mut self.bare {
                let few = bare.run(FEW).await?;
                times.few_first.push(few.first.as_secs_f64());
                times.few_last.push(few.last.as_secs_f64());
            }
            let before = self.begin()?;
            let started = Instant::now();
            fleet::create_policy(self.client, self.namespace, fleet::policy_for_few()).await?;
            let changes = self.watched.changes(started, fleet::names(FEW), LONGEST).await?;
            let changes = changes.with_context(|| self.not_written())?;
            let asked = self.subject.settle().await?;
            let writes = asked.iter().filter(|request| request.is_write()).count();
            figures.push(FewFigures {
                first: changes.first.as_secs_f64(),
                last: changes.last.as_secs_f64(),
                writes: f64::from(u32::try_from(writes)?),
                cpu: self.cpu_since(before)?,
            });
            self.delete_policy("few", FEW).await?;
        }
        let of = |part: fn(&FewFigures) -> f64| median(figures.iter().map(part).collect());
        Ok(FewFigures {
            first: of(|few| few.first),
            last: of(|few| few.last),
            writes: of(|few| few.writes),
            cpu: of(|few| few.cpu),
        })
    }

    /// A third card appears on a node.
    async fn late_cards(&mut self, tries: Tries) -> Result<Figure> {
        let cards = Cards { count: Cards::FEW.count + 1, ..Cards::FEW };
        let mut times = Vec::new();
        for attempt in 0..tries.small {
            if let Some((bare, times)) = &mut self.bare {
                times.one.push(bare.run(1).await?.last.as_secs_f64());
            }
            let name = fleet::node_name(FEW + attempt);
            self.begin()?;
            let started = Instant::now();
            fleet::report(self.client, self.namespace, &name, cards).await?;
            let Some(changes) = self.watched.changes(started, [name], tries.late).await? else {
                return Ok(Figure::MoreThan(tries.late.as_secs_f64()));
            };
            times.push(changes.last.as_secs_f64());
            self.subject.settle().await?;
        }
        Ok(Figure::Is(median(times)))
    }

    /// A node appears; its agent reports as soon as there is something to report to.
    async fn late_nodes(&mut self, tries: Tries) -> Result<Figure> {
        let mut times = Vec::new();
        for number in self.nodes..self.nodes + tries.small {
            let name = fleet::node_name(number);
            let time = self.late_node(number, tries.late).await?;
            fleet::delete_node(self.client, self.namespace, &name).await?;
            self.subject.settle().await?;
            match time {
                Some(time) => times.push(time),
                None => return Ok(Figure::MoreThan(tries.late.as_secs_f64())),
            }
        }
        Ok(Figure::Is(median(times)))
    }

    /// The operator's part of it: from the node to its node state, and from the report to the spec.
    async fn late_node(&mut self, number: usize, limit: Duration) -> Result<Option<f64>> {
        let name = fleet::node_name(number);
        self.begin()?;
        let started = Instant::now();
        fleet::create_nodes(self.client, number..number + 1).await?;
        let created = self.watched.changes(started, [name.clone()], limit).await?;
        let created = created.with_context(|| format!("{name} got no node state"))?.last;
        let started = Instant::now();
        fleet::report(self.client, self.namespace, &name, Cards::FEW).await?;
        let written = self.watched.changes(started, [name], limit).await?;
        Ok(written.map(|written| (created + written.last).as_secs_f64()))
    }

    async fn delete_policy(&mut self, name: &str, touched: usize) -> Result<()> {
        self.begin()?;
        let started = Instant::now();
        fleet::delete_policy(self.client, self.namespace, name).await?;
        let changes = self.watched.changes(started, fleet::names(touched), LONGEST).await?;
        changes.with_context(|| self.not_written())?;
        self.subject.settle().await?;
        Ok(())
    }

    /// From here on, what is seen and used counts.
    fn begin(&mut self) -> Result<Duration> {
        self.watched.catch_up();
        self.subject.cpu_time()
    }

    fn cpu_since(&self, before: Duration) -> Result<f64> {
        Ok(self.subject.cpu_time()?.saturating_sub(before).as_secs_f64())
    }

    fn not_written(&self) -> String {
        format!("node states are not written\n{}", self.subject.log_tail())
    }

    /// The bare loop is only a measure if it writes what the operator writes.
    pub(crate) async fn compare_with_the_bare_loop(&self) -> Result<()> {
        let name = fleet::node_name(self.nodes - 1);
        let state = fleet::states(self.client, self.namespace).get(&name).await?;
        let (written, expected) = (serde_json::to_value(&state.spec)?, fleet::spec_for_all(Cards::FEW));
        ensure!(written["interfaces"] == expected["interfaces"], "{name} is {written:#}, not {expected:#}");
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
