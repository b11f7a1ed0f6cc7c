"""The parts of Kubernetes' API (1.31: core/v1, batch/v1 and apps/v1) that our manifests use, as JSON schemas.

Objects have no other fields than these, so that a misspelled one is found; ``kubectl`` would ignore or refuse it.
"""

from typing import Any

NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}
TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 0}
QUANTITY = {"anyOf": [COUNT, {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?([KMGTPE]i?|k|m)?$"}]}
QUANTITIES = {"type": "object", "additionalProperties": QUANTITY}


def shape(required: str = "", **fields: Any) -> dict[str, Any]:
    """Return the schema of an object with these fields only."""
    return {"type": "object", "properties": fields, "required": required.split(), "additionalProperties": False}


def series(items: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list that is not empty."""
    return {"type": "array", "items": items, "minItems": 1}


def choice(*words: str) -> dict[str, Any]:
    """Return the schema of one of some words."""
    return {"enum": list(words)}


def whole(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a whole object of the API."""
    return shape(
        "apiVersion kind metadata spec",
        apiVersion={"const": version},
        kind={"const": kind},
        metadata=shape("name", name=NAME),
        spec=spec,
    )


PORT = {"type": "integer", "minimum": 1, "maximum": 65_535}
LABELS = {"type": "object", "additionalProperties": TEXT}
SERVICE = shape(
    ports=series(shape("port", name=NAME, port=PORT, targetPort=PORT)),
    clusterIP=TEXT,
    selector=LABELS,
    publishNotReadyAddresses={"type": "boolean"},
)
CLAIM = shape(
    "accessModes resources",
    accessModes=series(choice("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")),
    resources=shape("requests", requests=QUANTITIES),
    storageClassName=NAME,
)
VARIABLE = shape(
    "name",
    name={"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    value={"type": "string"},
    valueFrom=shape(secretKeyRef=shape("name key", name=NAME, key=TEXT, optional={"type": "boolean"})),
)
PROBE = shape(
    "httpGet",
    httpGet=shape("port", path=TEXT, port=PORT),
    **dict.fromkeys(("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold"), COUNT),
)
CONTAINER = shape(
    "name image",
    name=NAME,
    image=TEXT,
    workingDir=TEXT,
    resources=shape(limits=QUANTITIES, requests=QUANTITIES),
    env=series(VARIABLE),
    command=series(TEXT),
    args=series(TEXT),
    volumeMounts=series(shape("name mountPath", name=NAME, mountPath=TEXT, readOnly={"type": "boolean"})),
    ports=series(shape("containerPort", name=NAME, containerPort=PORT)),
    livenessProbe=PROBE,
    readinessProbe=PROBE,
    lifecycle=shape(preStop=shape(exec=shape("command", command=series(TEXT)))),
)
VOLUME = shape(
    "name",
    name=NAME,
    persistentVolumeClaim=shape("claimName", claimName=NAME, readOnly={"type": "boolean"}),
    emptyDir=shape(medium=choice("", "Memory"), sizeLimit=QUANTITY),
)
POD = shape(
    "containers restartPolicy",
    subdomain=NAME,
    restartPolicy=choice("Never", "OnFailure"),
    terminationGracePeriodSeconds=COUNT,
    securityContext=shape(fsGroup=COUNT, runAsUser=COUNT, runAsNonRoot={"type": "boolean"}),
    containers=series(CONTAINER),
    volumes=series(VOLUME),
)
EXIT_CODES = shape(
    "operator values",
    containerName=NAME,
    operator=choice("In", "NotIn"),
    values=series({"type": "integer", "minimum": 0, "maximum": 255}),
)
RULE = shape(
    "action",
    action=choice("FailJob", "FailIndex", "Ignore", "Count"),
    onExitCodes=EXIT_CODES,
    onPodConditions=series(shape("type", type=TEXT, status=choice("True", "False", "Unknown"))),
)
JOB = shape(
    "template",
    completionMode=choice("NonIndexed", "Indexed"),
    completions=COUNT,
    parallelism=COUNT,
    backoffLimit=COUNT,
    podFailurePolicy=shape("rules", rules=series(RULE)),
    template=shape("spec", spec=POD),
)
DEPLOYMENT = shape(
    "selector template",
    replicas=COUNT,
    selector=shape("matchLabels", matchLabels=LABELS),
    template=shape("metadata spec", metadata=shape("labels", labels=LABELS), spec={**POD, "required": ["containers"]}),
)
SCHEMAS = {
    "Service": whole("v1", "Service", SERVICE),
    "PersistentVolumeClaim": whole("v1", "PersistentVolumeClaim", CLAIM),
    "Job": whole("batch/v1", "Job", JOB),
    "Deployment": whole("apps/v1", "Deployment", DEPLOYMENT),
}
