"""Studies: what ``srfca reproduce`` runs, and the tables that it makes of the records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from srfca.experiments.experiment import Experiment
from srfca.experiments.paper import plan
from srfca.experiments.paper.ablations import load_ablations
from srfca.experiments.paper.plan import Row
from srfca.experiments.paper.published import Published, published
from srfca.experiments.records import Record
from srfca.report import ablations as ablation_tables
from srfca.report import reproduction, reproduction_page
from srfca.report.summary import Table

Records = Mapping[str, Sequence[Record]]
"""Records by experiment."""


@dataclass(frozen=True)
class Study(ABC):
    """What is run, and how it is shown.

    Args:
        rows: All rows, by key.
        experiments: The experiments.
    """

    rows: Mapping[str, Row]
    experiments: Sequence[Experiment]

    folder = ""
    """Folder of the records, inside that of the command."""
    command = "srfca reproduce"
    page = "results.md"
    """The page with the tables."""
    part = "reproduce"
    """The generated part of that page."""

    @property
    def titles(self) -> dict[str, str]:
        """Titles of the rows, by key."""
        return {row.key: row.title for row in self.rows.values()}

    @abstractmethod
    def tables(self, records: Records) -> list[Table]:
        """Make tables for the terminal."""

    @abstractmethod
    def write_figures(self, records: Records, folder: Path) -> None:
        """Draw the figures of the page."""

    @abstractmethod
    def markdown(self, records: Records, command: str) -> str:
        """Make the generated part of the page."""


class Reproduction(Study):
    """The paper's experiments, with every method of its tables."""

    kind = "measured"
    """Of the runs, in headings and in names of figures."""

    @property
    def published(self) -> Published:
        """Figures that these runs are compared with."""
        return published()

    @property
    def settings(self) -> Mapping[str, Sequence[str]]:
        """Settings that make the experiments small, by name."""
        return {}

    @classmethod
    def load(cls, names: Sequence[str], quick: bool, settings: Sequence[str]) -> Reproduction:
        """Load it; arguments are those of ``plan.load_experiments``."""
        return cls(plan.load_rows(), plan.load_experiments(names, quick, settings))

    def tables(self, records: Records) -> list[Table]:
        """Make a table for each experiment."""
        return [
            reproduction.experiment_table(
                f"{name}: {reproduction.provenance(runs)}",
                runs,
                self.titles,
                {source: self.published[source].get(name, {}) for source in self.published},
            )
            for name, runs in records.items()
        ]

    def write_figures(self, records: Records, folder: Path) -> None:
        """Draw the distances of each experiment."""
        from srfca.report.charts.export import write_figure
        from srfca.report.charts.histogram import recorded_histogram

        for name, runs in records.items():
            if (record := reproduction_page.histogram_record(runs)) is not None:
                figure = recorded_histogram(name, record["distances"])
                write_figure(figure, folder / reproduction_page.figure_file(name, self.kind))

    def markdown(self, records: Records, command: str) -> str:
        """Make the generated part of the page of results."""
        return reproduction_page.results_markdown(
            records, self.titles, self.published, command, self.kind, self.settings
        )


class ReducedReproduction(Reproduction):
    """Reduced versions of the experiments that need a GPU; published figures do not apply."""

    folder = "reduced"
    command = "srfca reproduce --reduced"
    part = "reproduce-reduced"
    kind = "reduced"

    @property
    def published(self) -> Published:
        """No figures: they are of the full size."""
        return {}

    @property
    def settings(self) -> Mapping[str, Sequence[str]]:
        """Settings that make the experiments small, by name."""
        return plan.reduced_settings()

    @classmethod
    def load(cls, names: Sequence[str], quick: bool, settings: Sequence[str]) -> Reproduction:
        """Load it; arguments are those of ``plan.load_experiments``."""
        experiments = plan.load_reduced(names, plan.reduced_settings(), quick, settings)
        return cls(plan.load_rows(), experiments)


class AblationStudy(Study):
    """Variants of SR-FCA that differ in one thing, on small experiments."""

    folder = "ablations"
    command = "srfca reproduce --ablations"
    page = "ablations.md"
    part = ablation_tables.PART

    @classmethod
    def load(cls, names: Sequence[str], quick: bool, settings: Sequence[str]) -> AblationStudy:
        """Load it; arguments are those of ``plan.load_experiments``."""
        study = load_ablations()
        experiments = plan.load_reduced(names, study.experiments, quick, settings)
        return cls(study.rows, experiments)

    def tables(self, records: Records) -> list[Table]:
        """Make a table for each group of rows."""
        groups = load_ablations().groups.items()
        made = [
            ablation_tables.group_table(title, records, rows, self.titles) for title, rows in groups
        ]
        return [table for table in made if table is not None]

    def write_figures(self, records: Records, folder: Path) -> None:
        """Draw nothing: the page has tables alone."""

    def markdown(self, records: Records, command: str) -> str:
        """Make the generated part of the page of ablations."""
        study = load_ablations()
        return ablation_tables.ablations_markdown(
            records, study.groups, self.titles, study.experiments, command
        )
