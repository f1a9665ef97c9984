"""Everything that reads files or requests of strangers, by kind."""

from fuzz.engine import Target
from fuzz.targets.audits import AUDITS
from fuzz.targets.benches import BENCHES
from fuzz.targets.files import FILES
from fuzz.targets.server_requests import SERVERS
from fuzz.targets.stored import STORED

TARGETS: dict[str, Target] = {target.kind: target for target in (*STORED, *AUDITS, *BENCHES, *FILES, *SERVERS)}
