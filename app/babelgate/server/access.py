"""Makes from the settings who may call the API, which pages may, and which bodies of others are accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from babelgate.brokers.binding import Binding
from babelgate.brokers.rate_store import RateStore, SharesRates
from babelgate.clock import Clock, now_ms
from babelgate.config.accepting import AcceptSettings, SignatureSettings
from babelgate.config.issuers import GrantSettings, IssuerSettings
from babelgate.config.pages import CorsSettings
from babelgate.config.rate_limits import RateSettings
from babelgate.config.sections import AuthSettings, TokenSettings
from babelgate.config.settings import Settings
from babelgate.errors import ConfigError
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.page_tokens import PageTerms
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.routing import Router
from babelgate.gateway.shared_rates import SharedRates
from babelgate.gateway.spreading import OtherProcesses
from babelgate.http.accepted_bodies import AcceptedBodies, AcceptRule
from babelgate.http.auth import Auth
from babelgate.http.cors import CorsPolicy, CorsRules
from babelgate.http.signatures import SignatureCheck
from babelgate.http.tokens import NO_CREDENTIALS
from babelgate.identities.certificates import CertificateRule, Certificates
from babelgate.identities.fetching import Documents
from babelgate.identities.identities import Identities
from babelgate.identities.issuer import Issuer
from babelgate.identities.terms import IssuerTerms, RightsRule
from babelgate.tokens.file import MadeToken, TokenFile
from babelgate.tokens.tokens import Tokens


def make_auth(settings: Settings, clock: Clock = now_ms) -> tuple[Auth, Identities | None]:
    """Who may call, and what verifies the tokens of issuers, where credentials are configured."""
    # The configured address is a name of this service as well, unless it stands for all addresses.
    address = f"[{settings.host}]" if ":" in settings.host else settings.host
    hosts = frozenset((*settings.hosts, address.lower())) - {"0.0.0.0", "[::]"}
    if settings.auth is None or settings.auth == "none":
        return Auth(hosts=hosts, open_readyz=settings.open_readyz, clock=clock), None
    callers = {token.sha256.lower(): _caller(token) for token in settings.auth.tokens}
    issuers = [_issuer(section) for section in settings.auth.issuers]
    # Both also without issuers and rules, because the configuration may get some while this serves.
    certificates = None if settings.tls_client_ca is None else Certificates(certificate_rules(settings), clock)
    identities = Identities(issuers, callers, clock)
    return Auth(callers, hosts, settings.open_readyz, clock, identities, certificates), identities


def certificate_rules(settings: Settings) -> list[CertificateRule]:
    """Whom client certificates are of."""
    if not isinstance(settings.auth, AuthSettings):
        return []
    return [
        CertificateRule(
            each.san,
            each.name,
            {queue: frozenset(rights) for queue, rights in each.rights.items()},
            None if each.limits is None else each.limits.terms,
        )
        for each in settings.auth.certificates
    ]


def _issuer(section: IssuerSettings) -> Issuer:
    terms = IssuerTerms(
        issuer=section.issuer,
        audience=frozenset(section.audience),
        algorithms=section.algorithms,
        rules=[_rights_rule(rule) for rule in section.rights],
        name_prefix=section.prefix,
        name_claim=section.name_claim,
        leeway_seconds=section.leeway_seconds,
        refresh_seconds=section.refresh_seconds,
    )
    documents = Documents(section.issuer, section.jwks_url, section.ca_file, section.bearer_file)
    source = (section.jwks_url, section.ca_file, section.bearer_file)
    return Issuer(terms, documents.keys, source=source)


def _rights_rule(section: GrantSettings) -> RightsRule:
    grant = {queue: frozenset(rights) for queue, rights in section.grant.items()}
    return RightsRule(section.claim, frozenset(section.value), grant)


def make_tokens(settings: Settings, auth: Auth, peers: OtherProcesses[MadeToken], clock: Clock) -> Tokens | str:
    """The tokens that calls make, which add to the callers of ``auth``; a text: why they make none."""
    section = settings.auth
    if not isinstance(section, AuthSettings) or auth.callers is None:
        return NO_CREDENTIALS
    if not section.made_tokens.enabled:
        return "auth.made_tokens.enabled is false"
    return Tokens(
        auth.callers,
        TokenFile(settings.state_dir),
        max_ttl_seconds=section.made_tokens.max_ttl_seconds,
        names=settings.caller_names,
        peers=peers,
        clock=clock,
    )


def _caller(token: TokenSettings) -> Caller:
    page = None
    if token.page is not None:
        page = PageTerms(token.page.origins, token.page.per_minute, token.page.max_message_bytes)
    limits = None if token.limits is None else token.limits.terms
    return Caller(token.name, {queue: frozenset(rights) for queue, rights in token.rights.items()}, page, limits=limits)


def rate_limits(settings: Settings, router: Router, bindings: Mapping[str, Binding]) -> RateLimits | None:
    """The limits of identities and queues; None where none are configured. Raises ConfigError for another store than
    one that shares rates."""
    store = rate_store(settings, bindings)
    identity = settings.rate_limits.identity
    configured: list[RateSettings | None] = [route.limits for route in settings.routes.values()]
    if isinstance(settings.auth, AuthSettings):
        configured += [token.limits for token in settings.auth.tokens]
        configured += [certificate.limits for certificate in settings.auth.certificates]
    if identity is None and all(limits is None for limits in configured):
        return None
    shared = None if store is None else SharedRates(store)
    terms = None if identity is None else identity.terms
    counts_leases = any(each is not None and each.limits_leases for each in (identity, *configured))
    return RateLimits(router, terms, shared=shared, counts_leases=counts_leases)


def rate_store(settings: Settings, bindings: Mapping[str, Binding]) -> RateStore | None:
    """Where all replicas count rates together; None if each process counts for itself. Raises ConfigError."""
    name = settings.rate_limits.store
    if name is None:
        return None
    broker: object = bindings.get(name)
    if not isinstance(broker, SharesRates):
        able = [each for each, binding in bindings.items() if isinstance(binding, SharesRates)]
        why = "is no broker that is configured" if broker is None else "cannot share rates"
        can = ", ".join(able) if able else "none of the configured brokers"
        raise ConfigError(key="rate_limits.store", reason=f"{name!r} {why}; what can: {can}")
    return broker.shared_rates


def cors_rules(settings: Settings, router: Router) -> CorsRules | None:
    """The pages of other origins that may call; None where none may."""
    routes = {match: _cors(queue.cors) for match, queue in settings.queues.items() if queue.cors is not None}
    everywhere = None if settings.cors is None else _cors(settings.cors)
    default = None if settings.default is None or settings.default.cors is None else _cors(settings.default.cors)
    if not routes and everywhere is None and default is None:
        return None
    return CorsRules(router, everywhere, routes, default)


def _cors(section: CorsSettings) -> CorsPolicy:
    return CorsPolicy(section.origins, section.headers, section.max_age)


def accepted_bodies(settings: Settings, router: Router) -> AcceptedBodies | None:
    """The bodies of other senders that routes accept; None where no route accepts any."""
    routes = {match: _rules(match, queue.accept) for match, queue in settings.queues.items() if queue.accept}
    default = [] if settings.default is None else _rules("*", settings.default.accept)
    return AcceptedBodies(router, routes, default) if routes or default else None


def _rules(match: str, sections: Sequence[AcceptSettings]) -> list[AcceptRule]:
    return [
        AcceptRule(
            content_type=section.content_type.encode("ascii"),
            job=section.job,
            into=section.into,
            signature=None if section.signature is None else _signature(section.signature),
            sender=_sender(match, section) if section.auth == "signature" else None,
            idempotency_header=section.idempotency_header,
            headers=section.headers,
        )
        for section in sections
    ]


def _sender(match: str, section: AcceptSettings) -> Caller:
    """Who publishes without a token: to the queues of the route, and nothing else."""
    return Caller(section.sender or f"sender of {match}", {match: frozenset({Right.SEND})})


def _signature(section: SignatureSettings) -> SignatureCheck:
    return SignatureCheck(
        header=section.header,
        secrets=section.keys,
        algorithm=section.algorithm,
        encoding=section.encoding,
        prefix=section.prefix,
        separator=section.separator,
        payload=section.payload,
        timestamp_header=section.timestamp_header,
        timestamp_prefix=section.timestamp_prefix,
        id_header=section.id_header,
        tolerance_seconds=section.tolerance_seconds,
    )
