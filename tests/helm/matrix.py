"""The values over which the chart is rendered: each way to store messages with each group of options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from tools.helm import Document, documents, template

VERSIONS = ("1.30", "1.34", "1.37")
"""Of Kubernetes: the oldest that the chart allows, that of the API server in the tests, and the newest with schemas."""

REDIS = {"brokers": {"cache": "redis://redis:6379/0"}}
S3 = {"landing": "s3://journal/landing"}

BASES: Mapping[str, dict[str, Any]] = {
    "sqlite": {},
    "redis": {"config": REDIS},
    "journal": {"config": {**REDIS, "journal": S3}, "replicas": 3, "persistence": {"storageClass": "fast"}},
    "open": {"config": {**REDIS, "auth": "none", "hosts": ["babel.example"], "host": "::", "drain_seconds": 2.5}},
    "many": {
        "config": {
            "brokers": {
                "cache": {"url": "redis://:${file:/run/secrets/cache/password}@redis:6379/0", "required": True},
                "rabbit": "amqp://shop:${env:RABBIT_PASSWORD}@rabbit:5672/",
                "sqs": "sqs://eu-west-1",
                "kafka": "kafka://kafka:9092",
            },
            "queues": {
                "z.*": {"broker": "rabbit"},
                "a*": {"broker": "kafka"},
                "mails": {"broker": "sqs", "backoff_seconds": [1, 10]},
            },
            "default": {"broker": "cache", "lease_seconds": 30},
            "idempotency": {"store": "cache"},
            "limits": {"max_stream_bytes": 1_073_741_824, "max_message_bytes": 524_288},
            "journal": {"landing": "/data/landing"},
            "auth": {
                "tokens": [{"name": "shop", "sha256": "a" * 64, "rights": {"mails": ["send"]}}],
                "made_tokens": {"max_ttl_seconds": 86_400},
            },
            "prefix": "/queues-api",
            "port": 8443,
            "tls_cert": "/run/secrets/tls/tls.crt",
            "tls_key": "/run/secrets/tls/tls.key",
            "shutdown_seconds": 60,
        },
        "patternOrder": ["z.*", "a*"],
        "secrets": {"cache": "redis-credentials", "tls": "gateway-tls"},
        "env": [
            {
                "name": "RABBIT_PASSWORD",
                "valueFrom": {"secretKeyRef": {"name": "rabbit-credentials", "key": "password"}},
            },
            {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"},
        ],
        "envFrom": [{"secretRef": {"name": "cloud"}}],
        "persistence": {"enabled": False},
    },
}

SCALED = {"enabled": True, "minReplicas": 3, "maxReplicas": 12, "targetCPU": 60}

PLACED: Mapping[str, Any] = {
    "nodeSelector": {"pool": "spark"},
    "tolerations": [{"key": "spark", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "gateway"}},
                    },
                }
            ]
        }
    },
    "priorityClassName": "batch",
}
"""Where the pods of the pipeline run."""

LINEAGE: Mapping[str, Any] = {
    "url": "https://marquez.internal:5000",
    "secret": "marquez",
    "env": {"OPENLINEAGE_NAMESPACE": "shop"},
}

OPTIONS: Mapping[str, dict[str, Any]] = {
    "nothing": {},
    "reached": {
        "service": {"type": "LoadBalancer", "port": 80, "annotations": {"example.com/internal": "true"}},
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "annotations": {"nginx.ingress.kubernetes.io/proxy-read-timeout": "60"},
            "hosts": ["queues.example.com"],
            "tls": [{"hosts": ["queues.example.com"], "secretName": "queues-tls"}],
        },
        "httpRoute": {
            "enabled": True,
            "annotations": {"example.com/team": "shop"},
            "parentRefs": [{"name": "public", "namespace": "gateways"}],
            "hostnames": ["api.example.com"],
            "requestTimeout": "90s",
        },
    },
    "observed": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "30s"},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True, "labels": {"grafana_dashboard": "yes"}},
    },
    "by CPU": {"autoscaling": SCALED},
    "by depth": {
        "autoscaling": {
            **SCALED,
            "keda": {
                "enabled": True,
                "prometheusAddress": "http://prometheus:9090",
                "queues": [{"queue": "mails", "messagesPerReplica": 500}],
            },
        }
    },
    "placed": {
        "podLabels": {"azure.workload.identity/use": "true"},
        "podAnnotations": {"example.com/owner": "shop"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "queues", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "arch", "operator": "In", "values": ["arm64"]}]}
                    ]
                }
            }
        },
        "priorityClassName": "important",
        "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}],
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/queues"}},
        "preStopSeconds": 15,
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi", "cpu": "2"}},
        "podDisruptionBudget": {"maxUnavailable": "25%"},
    },
    "on OpenShift": {
        "uid": None,
        "pipeline": {
            "cronJob": {"enabled": True},
            "storage": {"existingClaim": "lake"},
            "spark": {"operator": "kubeflow", "jobs": ["metrics"]},
        },
    },
    "by another user": {
        "uid": 1_000_700_000,
        "pipeline": {
            "cronJob": {"enabled": True},
            "storage": {"existingClaim": "lake"},
            "spark": {"operator": "apache", "jobs": ["metrics"]},
        },
    },
    "named": {
        "fullnameOverride": "queues",
        "image": {
            "repository": "registry.example.com/babelgate",
            "digest": "sha256:" + "0" * 64,
            "pullPolicy": "Always",
            "pullSecrets": ["registry"],
        },
        "tokens": {"existingSecret": "tokens", "rights": {"pipeline": None}},
        "tokenKeys": {"existingSecret": "keys", "ids": ["2026", "2025"]},
        "serviceAccount": {"create": False, "name": "queues"},
        "peers": {"port": 7999},
        "test": {"queue": "mails"},
    },
    "closed": {
        "networkPolicy": {
            "clients": [{"namespaceSelector": {"matchLabels": {"team": "shop"}}}],
            "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "redis"}}}], "ports": [{"port": 6379}]}],
        }
    },
    "bare": {
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "serviceAccount": {"create": False},
        "topologySpreadConstraints": [],
        "image": {"tag": "edge"},
    },
    "nightly": {
        "pipeline": {
            "cronJob": {
                "enabled": True,
                "schedule": "0 3 * * *",
                "refreshSchedule": "5 5-23 * * *",
                "timeZone": "Europe/Vienna",
                "startingDeadlineSeconds": 600,
                "activeDeadlineSeconds": 7_200,
                "ttlSecondsAfterFinished": 86_400,
                "tasks": 4,
                "driverMemory": "3g",
            },
            **PLACED,
            "storage": {"storageClass": "shared", "size": "1Ti"},
            "image": {"tag": "edge"},
        }
    },
    "continuous": {
        "podLabels": {"azure.workload.identity/use": "true"},
        "pipeline": {
            "continuous": {
                "commands": ["ingest", "metrics"],
                "intervalSeconds": {"ingest": 300, "metrics": 0.5},
                "roundSeconds": 7201,
                "tasks": 2,
                "driverMemory": "2g",
            },
            "cronJob": {"enabled": True, "refreshSchedule": "*/15 5-23 * * *"},
            "openlineage": LINEAGE,
            "storage": {"existingClaim": "lake"},
            **PLACED,
        },
    },
    "kubeflow": {
        "pipeline": {
            "spark": {"operator": "kubeflow", "jobs": ["metrics", "redrive"], "executors": 8, "redriveRate": 50},
            "openlineage": LINEAGE,
            "storage": {"existingClaim": "lake"},
            **PLACED,
        },
        "podLabels": {"azure.workload.identity/use": "true"},
        "podAnnotations": {"example.com/owner": "shop"},
    },
    "scheduled": {
        "pipeline": {
            "spark": {"operator": "kubeflow", "metricsSchedule": "15 2 * * *"},
            "cronJob": {"timeZone": "Europe/Vienna"},
            "storage": {"existingClaim": "lake"},
        }
    },
    "apache": {
        "podLabels": {"azure.workload.identity/use": "true"},
        "podAnnotations": {"example.com/owner": "shop"},
        "pipeline": {
            **PLACED,
            "spark": {"operator": "apache", "jobs": ["metrics", "redrive"]},
            "openlineage": LINEAGE,
            "storage": {"enabled": False},
            "lake": "s3a://lake",
        },
    },
}

_ONE_GATEWAY = "sqlite"


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings merged as Helm merges values."""
    both = {
        key: merged(base[key], more[key])
        for key in base.keys() & more.keys()
        if isinstance(base[key], Mapping) and isinstance(more[key], Mapping)
    }
    return {**base, **more, **both}


def _cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for base, values in BASES.items():
        for option, more in OPTIONS.items():
            if not (base == _ONE_GATEWAY and "autoscaling" in more):
                yield f"{base}, {option}", merged(values, more)


CASES: Mapping[str, dict[str, Any]] = dict(_cases())


@cache
def manifests() -> Mapping[str, str]:
    """What the chart renders, by the name of the case."""
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(CASES, pool.map(template, CASES.values()), strict=True))


@cache
def rendered() -> Mapping[str, list[Document]]:
    """The objects of each case."""
    return {name: documents(text) for name, text in manifests().items()}


def gateway_of(found: list[Document]) -> Document:
    """The Deployment or StatefulSet of the gateway."""
    workloads = [each for each in found if each["kind"] in ("Deployment", "StatefulSet")]
    (one,) = [each for each in workloads if each["metadata"]["labels"]["app.kubernetes.io/component"] == "gateway"]
    return one


def kinds() -> Counter[str]:
    """How many objects of each kind the cases have, together."""
    return Counter(each["kind"] for found in rendered().values() for each in found)
