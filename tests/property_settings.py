"""One profile for every property-based test: few examples, the same ones each time."""

from hypothesis import HealthCheck, settings


def examples(count: int) -> settings:
    """Settings for `count` examples, without deadline, randomness or a database."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
