"""The variance of a mean over two crossed levels."""

import numpy as np
import pytest
from scipy.stats import t as student_t

from adaptive_bench.tables.intervals import Crossed


def test_parts_of_the_variance_are_unbiased():
    random = np.random.default_rng(0)
    seeds, documents = 4, 6
    of_seed, of_document, of_both = 0.3, 0.5, 0.8
    tables = (
        random.normal(0, of_seed, (20_000, seeds, 1))
        + random.normal(0, of_document, (20_000, 1, documents))
        + random.normal(0, of_both, (20_000, seeds, documents))
    )
    true = of_seed**2 / seeds + of_document**2 / documents + of_both**2 / (seeds * documents)
    found = Crossed.of(tables)
    assert tables.mean(axis=(1, 2)).var() == pytest.approx(true, rel=0.03)
    # Kept from falling below its parts, the variance is a little too large rather than too small.
    assert true < found.variance.mean() < 1.1 * true
    strong = Crossed.of(
        tables * 0 + random.normal(0, 1, (20_000, seeds, 1)) + random.normal(0, 1, (20_000, 1, documents))
    )
    assert strong.seed_variance.mean() == pytest.approx(1 / seeds, rel=0.03)
    assert strong.document_variance.mean() == pytest.approx(1 / documents, rel=0.03)


def test_one_seed_is_a_plain_t_over_documents():
    values = np.array([[1.0, 2.0, 4.0, 7.0]])
    found = Crossed.of(values)
    assert float(found.variance) == pytest.approx(values.var(ddof=1) / 4)
    assert (float(found.degrees_of_freedom), float(found.seed_variance)) == (3.0, 0.0)
    assert float(found.quantile(0.95)) == pytest.approx(student_t.ppf(0.975, 3))


def test_seeds_alone_are_a_plain_t_over_seeds():
    found = Crossed.of(np.array([[1.0], [2.0], [4.0]]))
    assert float(found.variance) == pytest.approx(np.var([1, 2, 4], ddof=1) / 3)
    assert float(found.degrees_of_freedom) == pytest.approx(2.0)


def test_few_seeds_that_vary_take_the_quantile_of_the_seeds():
    documents = np.zeros((2, 50))
    documents[1] = 1.0
    assert float(Crossed.of(documents).degrees_of_freedom) == pytest.approx(1.0)


def test_equal_seeds_leave_the_documents():
    found = Crossed.of(np.array([[0.0, 1.0, 0.0, 1.0]] * 3))
    assert float(found.seed_variance) == 0.0
    assert float(found.degrees_of_freedom) == pytest.approx(3.0)


def test_equal_scores_have_no_variance_and_a_normal_quantile():
    found = Crossed.of(np.ones((3, 5)))
    assert (float(found.variance), float(found.degrees_of_freedom)) == (0.0, np.inf)
