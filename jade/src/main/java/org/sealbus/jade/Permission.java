package org.sealbus.jade;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The platform's rules for messages between its agents, and on channels. The first rule that matches decides; else a message may be
 * sent. {@code crates/seal/src/permission.rs} defines their meaning.
 */
final class Permission {
    /** The platform's own agents, beside the one of each node. A rule for messages means them only if it names them. */
    private static final List<String> SERVICES = List.of("master", "ca", "ams", "df", "operator");
    private static final String EVERYBODY = "*";

    private final String platform;
    private final Set<String> services;
    private final Map<?, ?> groups;
    private final List<?> rules;
    private final List<?> channelRules;
    private final List<?> declared;

    /** Rules as the node of this name tells them. */
    Permission(String platform, String node, Object rules) {
        this.platform = platform;
        services = Stream.concat(SERVICES.stream(), Stream.of(node)).map(this::whole).collect(Collectors.toSet());
        Object policy = Json.member(rules, "permission");
        groups = policy != null && Json.member(policy, "groups") instanceof Map<?, ?> found ? found : Map.of();
        this.rules = policy != null && Json.member(policy, "rule") instanceof List<?> found ? found : List.of();
        declared = Json.member(rules, "channels") instanceof List<?> found ? found : List.of();
        channelRules = policy != null && Json.member(policy, "channel") instanceof List<?> found ? found : List.of();
    }

    /**
     * Whether an agent may write to another one on behalf of these agents, all by their whole names. Without askers it asks for
     * itself.
     */
    boolean permits(String sender, String receiver, List<String> askers) {
        for (Object rule : rules) {
            Object allow = Json.member(rule, "allow");
            Object messages = allow == null ? Json.member(rule, "deny") : allow;
            if (isForSide(Json.list(messages, "from"), sender) && isForSide(Json.list(messages, "to"), receiver)
                    && isForAskers(messages, allow != null, askers)) {
                return allow != null;
            }
        }
        return true;
    }

    /**
     * Without {@code on-behalf-of} a rule applies whoever asks. With it, a rule applies only to messages on behalf of others: one
     * that denies, if one of them is meant; one that allows, if all of them are.
     */
    private boolean isForAskers(Object messages, boolean allows, List<String> askers) {
        if (Json.member(messages, "on-behalf-of") == null) {
            return true;
        }
        List<?> entries = Json.list(messages, "on-behalf-of");
        Stream<String> all = askers.stream();
        return !askers.isEmpty()
                && (allows ? all.allMatch(one -> names(entries, one)) : all.anyMatch(one -> names(entries, one)));
    }

    /** Whether a rule for messages means an agent as their sender, or as their receiver. */
    private boolean isForSide(List<?> entries, String agent) {
        return names(entries, agent) && !(entries.contains(EVERYBODY) && services.contains(agent));
    }

    /** Whether an agent, by its local name, has a right on a channel. */
    boolean may(String agent, String right, String channel) {
        for (Object rule : channelRules) {
            Object allow = Json.member(rule, "allow");
            Object uses = allow == null ? Json.member(rule, "deny") : allow;
            boolean isOn = Json.list(uses, "on").stream().anyMatch(on -> ChannelSubscription.matches((String) on, channel));
            if (isOn && Json.list(uses, "do").contains(right) && names(Json.list(uses, "agents"), whole(agent))) {
                return allow != null;
            }
        }
        return true;
    }

    /** The quality of service of a channel. The first entry of the manifest that matches applies. */
    Qos qos(String channel) {
        for (Object entry : declared) {
            if (ChannelSubscription.matches(Json.text(entry, "path"), channel)) {
                return new Qos().with(Json.member(entry, "qos") instanceof String text ? text : "");
            }
        }
        return new Qos();
    }

    /** Whether groups, agents or {@code *} name an agent, by its whole name. */
    private boolean names(List<?> entries, String agent) {
        return entries.contains(EVERYBODY) || entries.stream().anyMatch(entry -> groups.get(entry) instanceof List<?> members
                ? members.stream().anyMatch(member -> whole((String) member).equals(agent))
                : whole((String) entry).equals(agent));
    }

    private String whole(String agent) {
        return agent.contains("@") ? agent : agent + "@" + platform;
    }
}
