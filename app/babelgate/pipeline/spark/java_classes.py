"""Remembers the Java classes and static methods that PySpark asks Java for in nearly every call.

Py4J asks again each time. For a name without its package, Java then searches each package that PySpark imports in all
jar files, which took a quarter of the time of a job on little data.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember

_USED = {
    "functions": "org.apache.spark.sql.functions",
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
    "PythonSQLUtils": "org.apache.spark.sql.api.python.PythonSQLUtils",
}
"""The names under which PySpark looks classes up, and their full names."""


class _RememberedClass(JavaClass):  # type: ignore[misc]
    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            # Python looks here only for attributes that are not set.
            setattr(self, name, found)
        return found


def remember_classes(jvm: Any) -> None:
    """Look up once what PySpark uses most. ``jvm``: the view of Java that belongs to a session."""
    for name, full_name in _USED.items():
        remembered = _RememberedClass(full_name, jvm._gateway_client)
        setattr(jvm, name, remembered)
        setattr(jvm, full_name, remembered)
