"""Which uids are people's, rather than those of root, of services and of nobody."""

from __future__ import annotations

FIRST_UID = 1000  # of people, where the system does not say
NOBODYS_UIDS = (65534, 65535)
DYNAMIC_UIDS = range(61184, 65520)  # systemd gives them to services with DynamicUser=, under the service's name


def is_of_person(uid: int, first_uid: int = FIRST_UID) -> bool:
    """Whether the uid is one of those that people have."""
    return uid >= first_uid and uid not in NOBODYS_UIDS and uid not in DYNAMIC_UIDS
