package org.sealbus.jade;

import java.util.List;
import java.util.Map;
import java.util.Set;

/** The platform's rules for messages between its agents, and on channels. The first rule that matches decides; else a message may be sent. */
final class Permission {
    /** The platform's own agents. A rule means them only if it names them. */
    private static final Set<String> SERVICES = Set.of("master", "ca", "ams", "df", "operator");

    private final String platform;
    private final Map<?, ?> groups;
    private final List<?> rules;
    private final List<?> channelRules;
    private final List<?> declared;

    /** Rules as the node tells them. */
    Permission(String platform, Object rules) {
        this.platform = platform;
        Object policy = Json.member(rules, "permission");
        groups = policy != null && Json.member(policy, "groups") instanceof Map<?, ?> found ? found : Map.of();
        this.rules = policy != null && Json.member(policy, "rule") instanceof List<?> found ? found : List.of();
        declared = Json.member(rules, "channels") instanceof List<?> found ? found : List.of();
        channelRules = policy != null && Json.member(policy, "channel") instanceof List<?> found ? found : List.of();
    }

    /** Whether an agent may write to another one, by their local names. */
    boolean permits(String sender, String receiver) {
        for (Object rule : rules) {
            Object allow = Json.member(rule, "allow");
            Object messages = allow == null ? Json.member(rule, "deny") : allow;
            if (names(Json.list(messages, "from"), sender) && names(Json.list(messages, "to"), receiver)) {
                return allow != null;
            }
        }
        return true;
    }

    /** Whether an agent, by its local name, has a right on a channel. */
    boolean may(String agent, String right, String channel) {
        for (Object rule : channelRules) {
            Object allow = Json.member(rule, "allow");
            Object uses = allow == null ? Json.member(rule, "deny") : allow;
            boolean isOn = Json.list(uses, "on").stream().anyMatch(on -> ChannelSubscription.matches((String) on, channel));
            if (isOn && Json.list(uses, "do").contains(right) && names(Json.list(uses, "agents"), agent)) {
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

    private boolean names(List<?> entries, String agent) {
        return entries.stream().map(String.class::cast).anyMatch(entry -> entry.equals("*") && !SERVICES.contains(agent)
                || isAgent(entry, agent)
                || groups.get(entry) instanceof List<?> members
                        && members.stream().anyMatch(member -> isAgent((String) member, agent)));
    }

    private boolean isAgent(String entry, String agent) {
        return entry.equals(agent) || entry.equals(agent + "@" + platform);
    }
}
