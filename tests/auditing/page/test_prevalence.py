"""A caveat stands beside a kappa that is low because one class rules."""

from labeltide.auditing.page.verdict import prevalence_caveat


def test_a_low_kappa_beside_high_agreement_is_explained_by_the_class_that_rules():
    """93 of 100 pairs agree, 90 % of labels are one class: kappa is 0.61 (Feinstein and Cicchetti 1990)."""
    told = prevalence_caveat({"fleiss": 0.61, "observed": 0.93, "largest_share": 0.9, "largest_class": "rest"})
    assert "same label in 93\u00a0% of cases, and yet kappa is 0.61" in told
    assert "kappa paradox, Feinstein and Cicchetti 1990" in told


def test_other_kappas_need_no_caveat():
    assert prevalence_caveat({}) == ""
    low = {"fleiss": 0.4, "observed": 0.6, "largest_share": 0.4, "largest_class": "rest"}
    assert prevalence_caveat(low) == ""  # annotators differ, and no class rules
    assert prevalence_caveat(low | {"fleiss": 0.9, "observed": 0.99, "largest_share": 0.9}) == ""
    assert prevalence_caveat(low | {"observed": None}) == ""
