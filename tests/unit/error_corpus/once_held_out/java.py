"""Java consumers of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind

DB2_STACK = """\
org.springframework.jdbc.BadSqlGrammarException: PreparedStatementCallback; {{reason}}
at org.springframework.jdbc.support.SQLExceptionSubclassTranslator.doTranslate(SQLExceptionSubclassTranslator.java:{{line}})
at org.springframework.jdbc.core.JdbcTemplate.translateException(JdbcTemplate.java:{{line}})
at de.hansa.police.bestand.VertragDao.speichern(VertragDao.java:{{line}})
at de.hansa.police.bestand.VertragEmpfaenger$$SpringCGLIB$${{int:0-3}}.empfange(<generated>)
{{tail:reflect}}
Caused by: com.ibm.db2.jcc.am.SqlIntegrityConstraintViolationException: {{reason}}
at com.ibm.db2.jcc.am.b{{int:3-7}}.a(b{{int:3-7}}.java:{{line}})
at com.ibm.db2.jcc.t4.ab.i(ab.java:{{line}})
... {{int:12-44}} more"""

NO_CLASS_STACK = """\
org.springframework.amqp.rabbit.listener.exception.FatalListenerExecutionException: Error in listener on {{pod:claims}}, delivery tag {{int}}
{{tail:reflect}}
Caused by: java.lang.NoClassDefFoundError: {{reason}}
at io.meridian.claims.pdf.LetterRenderer.<init>(LetterRenderer.java:{{line}})
at io.meridian.claims.pdf.LetterConsumer.lambda$accept${{int:0-12}}(LetterConsumer.java:{{line}})
at io.meridian.claims.pdf.LetterConsumer$$Lambda/0x0000{{hex:12}}.accept(Unknown Source)
{{tail:pool}}
Caused by: java.lang.ClassNotFoundException: {{reason}}
at java.base/jdk.internal.loader.BuiltinClassLoader.loadClass(BuiltinClassLoader.java:{{line}})
at java.base/java.lang.ClassLoader.loadClass(ClassLoader.java:{{line}})
... {{int:5-30}} more"""

DATE_REASON = "Text '{{pick:31/02/|2026-13-|0000-00-|29.02.|20260}}{{digits:4}}{{maybe: 24:61}}' could not be parsed at index {{int:0-9}}"
DATE_STACK = """\
java.time.format.DateTimeParseException: {{reason}}
at java.base/java.time.format.DateTimeFormatter.parseResolved0(DateTimeFormatter.java:{{line}})
at java.base/java.time.format.DateTimeFormatter.parse(DateTimeFormatter.java:{{line}})
at java.base/java.time.LocalDate.parse(LocalDate.java:{{line}})
at io.meridian.claims.intake.%s(%s.java:{{line}})
at java.base/java.util.stream.ReferencePipeline$3$1.accept(ReferencePipeline.java:{{line}})
at java.base/java.util.stream.AbstractPipeline.evaluate(AbstractPipeline.java:{{line}})
at io.meridian.claims.intake.IntakeConsumer.accept(IntakeConsumer.java:{{line}})
{{tail:pool}}"""

KINDS = (
    kind(
        "java-db2-duplicate",
        near="java-db2-no-parent",
        queue="BESTAND.VERTRAG.IN",
        error_type="com.ibm.db2.jcc.am.SqlIntegrityConstraintViolationException",
        reason="DB2 SQL Error: SQLCODE=-803, SQLSTATE=23505, SQLERRMC={{int:1-9}};HANSA.VERTRAG, DRIVER=4.{{int:19-33}}.{{int:1-60}}",
        stack=DB2_STACK,
    ),
    kind(
        "java-db2-no-parent",
        near="java-db2-duplicate",
        queue="BESTAND.VERTRAG.IN",
        error_type="com.ibm.db2.jcc.am.SqlIntegrityConstraintViolationException",
        reason="DB2 SQL Error: SQLCODE=-530, SQLSTATE=23503, SQLERRMC={{int:1-9}};HANSA.VERTRAG, DRIVER=4.{{int:19-33}}.{{int:1-60}}",
        stack=DB2_STACK,
    ),
    kind(
        "java-no-class-font",
        near="java-no-class-barcode",
        queue="claims.letters",
        error_type="java.lang.NoClassDefFoundError",
        reason="org/apache/fontbox/ttf/TrueTypeCollection",
        stack=NO_CLASS_STACK,
    ),
    kind(
        "java-no-class-barcode",
        near="java-no-class-font",
        queue="claims.letters",
        error_type="java.lang.NoClassDefFoundError",
        reason="com/google/zxing/oned/Code128Writer",
        stack=NO_CLASS_STACK,
    ),
    kind(
        "java-date-of-loss",
        near="java-date-of-birth",
        queue="claims.intake",
        error_type="java.time.format.DateTimeParseException",
        reason=DATE_REASON,
        stack=DATE_STACK % ("LossMapper.toLoss", "LossMapper"),
    ),
    kind(
        "java-date-of-birth",
        near="java-date-of-loss",
        queue="claims.intake",
        error_type="java.time.format.DateTimeParseException",
        reason=DATE_REASON,
        stack=DATE_STACK % ("InsuredMapper.toInsured", "InsuredMapper"),
    ),
    kind(
        "java-cast-proxy",
        queue="claims.payout",
        error_type="java.lang.ClassCastException",
        reason="class jdk.proxy{{int:2-4}}.{{proxy#p}} cannot be cast to class io.meridian.claims.payout.BankPayout (jdk.proxy2.{{proxy#p}} is in module jdk.proxy2 of loader org.springframework.boot.loader.LaunchedURLClassLoader @{{hex:8}}; io.meridian.claims.payout.BankPayout is in unnamed module of loader 'app')",
        stack="""\
java.lang.ClassCastException: {{reason}}
at io.meridian.claims.payout.PayoutRouter.route(PayoutRouter.java:{{line}})
at io.meridian.claims.payout.PayoutRouter{{cglib}}.route(<generated>)
{{tail:aop}}
at io.meridian.claims.payout.PayoutConsumer.onMessage(PayoutConsumer.java:{{line}})
{{tail:reflect}}""",
    ),
    kind(
        "java-optimistic-lock",
        queue="policies.changes",
        error_type="org.springframework.orm.ObjectOptimisticLockingFailureException",
        reason="Row was updated or deleted by another transaction (or unsaved-value mapping was incorrect) : [io.meridian.policy.Policy#{{pick:P-|V-|}}{{digits:9}}]",
        stack="""\
org.springframework.orm.ObjectOptimisticLockingFailureException: {{reason}}
at org.springframework.orm.jpa.vendor.HibernateJpaDialect.convertHibernateAccessException(HibernateJpaDialect.java:{{line}})
at org.springframework.dao.support.ChainedPersistenceExceptionTranslator.translateExceptionIfPossible(ChainedPersistenceExceptionTranslator.java:{{line}})
at jdk.proxy4/jdk.proxy4.{{proxy}}.saveAndFlush(Unknown Source)
at io.meridian.policy.EndorsementService.apply(EndorsementService.java:{{line}})
at io.meridian.policy.EndorsementService$$SpringCGLIB$${{int:0-3}}.apply(<generated>)
{{tail:aop}}
at io.meridian.policy.ChangeConsumer.handle(ChangeConsumer.java:{{line}})
{{tail:reflect}}
Caused by: org.hibernate.StaleObjectStateException: {{reason}}
at org.hibernate.persister.entity.AbstractEntityPersister.check(AbstractEntityPersister.java:{{line}})
... {{int:20-90}} more""",
    ),
    kind(
        "java-invalid-iban",
        queue="claims.payout",
        error_type="jakarta.validation.ConstraintViolationException",
        reason="""\
Validation failed for classes [io.meridian.claims.payout.Payee] during persist time for groups [jakarta.validation.groups.Default, ]
List of constraint violations:[
	ConstraintViolationImpl{interpolatedMessage='checksum of {{upper:2}}{{digits:20}} is wrong', propertyPath=iban, rootBeanClass=class io.meridian.claims.payout.Payee, rootBean=io.meridian.claims.payout.Payee@{{hex:8}}, messageTemplate='{iban.checksum}'}
]""",
        stack="""\
jakarta.validation.ConstraintViolationException: {{reason}}
at org.hibernate.cfg.beanvalidation.BeanValidationEventListener.validate(BeanValidationEventListener.java:{{line}})
at org.hibernate.action.internal.EntityInsertAction.preInsert(EntityInsertAction.java:{{line}})
at jdk.proxy3/jdk.proxy3.{{proxy}}.persist(Unknown Source)
at io.meridian.claims.payout.PayeeStore.add(PayeeStore.java:{{line}})
at io.meridian.claims.payout.PayoutConsumer.onMessage(PayoutConsumer.java:{{line}})
{{tail:reflect}}""",
    ),
)
