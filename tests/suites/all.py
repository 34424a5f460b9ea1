"""All behaviour suites of the broker contract."""

from __future__ import annotations

from tests.suites.attempts import TestAttempts as TestAttempts
from tests.suites.cloudevents import TestCloudEvents as TestCloudEvents
from tests.suites.dead_letters import TestDeadLetters as TestDeadLetters
from tests.suites.events import TestEvents as TestEvents
from tests.suites.framings import TestFramings as TestFramings
from tests.suites.freed import TestFreed as TestFreed
from tests.suites.hung import TestHung as TestHung
from tests.suites.leases import TestLeases as TestLeases
from tests.suites.letters import TestLetters as TestLetters
from tests.suites.life import TestLife as TestLife
from tests.suites.limits import TestLimits as TestLimits
from tests.suites.operators import TestOperators as TestOperators
from tests.suites.options import TestOptions as TestOptions
from tests.suites.pause import TestPause as TestPause
from tests.suites.publish import TestPublish as TestPublish
from tests.suites.push import TestPush as TestPush
from tests.suites.receive import TestReceive as TestReceive
from tests.suites.redrive import TestRedrive as TestRedrive
from tests.suites.redrive_jobs import TestRedriveJobs as TestRedriveJobs
from tests.suites.settle import TestSettle as TestSettle
from tests.suites.streams import TestStreams as TestStreams
