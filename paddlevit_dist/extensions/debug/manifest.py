"""What debugging brings: a doctor, a profile, a self-test, and the first layer that is not finite."""

from ...core.registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    key_tables=(".settings:TABLE",),
    commands={
        "doctor": (".doctor:run", "check machine, data and the first steps of a run"),
    },
    jobs={"SELFTEST": ".selftest:run"},
    hooks={"PROFILE": ".profile:ProfileHook"},
    functions={"FirstLayerFinder": ".first_layer:FirstLayerFinder"},
)
